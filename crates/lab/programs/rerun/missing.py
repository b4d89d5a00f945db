# A name that is not in a table. The number in the next line says what was made of it, as in `edits.h`.
FIX = 0
import os
import sys

known = {"one": 1, "two": 2}
if FIX == 3:
    print("log:", os.getpid(), os.path.exists("/etc/passwd"), file=sys.stderr)
for line in open(sys.argv[1], buffering=65536 if FIX == 3 else -1):
    word = line.strip()
    if FIX in (1, 3) and word not in known:
        continue
    if FIX == 2 and word not in known:
        word = None + word
    print(known[word], flush=True)
