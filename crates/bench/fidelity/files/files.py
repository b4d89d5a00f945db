import csv
import gzip
import hashlib
import os
import sqlite3
import struct
import zlib

with open("table.csv") as f:
    rows = list(csv.reader(f))
print(len(rows), sum(float(r[2]) for r in rows))
data = open("binary.bin", "rb").read()
for name in ("md5", "sha1", "sha256", "sha3_256", "blake2b"):
    print(name, hashlib.new(name, data).hexdigest())
packed = zlib.compress(data, 6)
print(len(packed), zlib.crc32(packed), zlib.decompress(packed) == data)
with gzip.GzipFile("out.gz", "wb", mtime=0) as f:
    f.write(data[:5000])
db = sqlite3.connect("out.db")
db.execute("create table t(name, n, share)")
db.executemany("insert into t values(?, ?, ?)", [r[:3] for r in rows])
db.commit()
print(db.execute("select count(*), max(share) from t where n > 50").fetchone())
os.mkdir("made")
os.rename("out.gz", "made/out.gz")
print(sorted(os.listdir("made")), struct.pack("<dIh", 1.5, 7, -3).hex())
