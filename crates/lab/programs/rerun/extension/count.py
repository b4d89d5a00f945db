import sys

import words

for line in open(sys.argv[1]):
    print(words.second(line.split()), flush=True)
