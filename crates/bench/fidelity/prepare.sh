#!/bin/sh
# Fills the current directory with the inputs of the commands in cases.txt. The directory holds a
# copy of files/ already.
set -eu
export LC_ALL=C.UTF-8 TZ=UTC

seq 1 4000 | mawk '{ printf "%d %s %x\n", ($1 * 7919) % 10007, substr("lorem ipsum dolor sit amet consectetur", 1 + $1 % 30, 7), $1 * 2654435761 % 4294967296 }' > words.txt
seq 1 4000 | mawk '{ printf "%d %s %x\n", ($1 * 7919) % 10007, substr("lorem ipsum dolor sit amet consectetur", 1 + $1 % 30, 7), ($1 % 50 ? $1 : 1) * 2654435761 % 4294967296 }' > words2.txt
sort words.txt > sorted.txt
sort words2.txt > sorted2.txt
seq 1 500 | mawk '{ print "name" $1 "," $1 * 3 % 101 "," $1 / 7 "," ($1 % 2 ? "yes" : "no") }' > table.csv
seq 1 300 | mawk 'BEGIN { print "[" } { printf "%s{\"id\": %d, \"tags\": [\"a%d\", \"b\"], \"size\": %.3f}\n", (NR > 1 ? "," : ""), $1, $1 % 7, $1 / 3 } END { print "]" }' > data.json
seq 1 200 | mawk 'BEGIN { print "<list>" } { printf "<item n=\"%d\"><name>x%d</name></item>\n", $1, $1 % 13 } END { print "</list>" }' > data.xml
seq 1 30000 | gzip -n -9 > numbers.gz
gzip -dc numbers.gz > numbers.txt
bzip2 -k numbers.txt
xz -k -T1 numbers.txt
zstd -q -k numbers.txt
head -c 200000 /usr/bin/perl > binary.bin
mkdir -p tree/a/b tree/c
for i in 1 2 3 4 5 6 7 8 9; do seq $i 40 > tree/a/$i.txt; seq 1 $i > tree/a/b/$i.dat; done
ln -s ../a/1.txt tree/c/link
chmod 640 tree/a/2.txt
gcc -O1 -c unit.c -o unit.o
gcc -O1 -S unit.c -o unit.s
gcc -E unit.c -o unit.i
gcc -g -O1 unit.c main.c -o program
ar rcs libunit.a unit.o
mawk 'BEGIN { print "P3 96 64 255"; for (i = 0; i < 96 * 64; i++) print i % 256, i * 7 % 256, int(i / 64) % 256 }' > image.ppm
pnmtopng image.ppm > image.png 2> /dev/null
mawk 'NR > 1 { print p, $1 } { p = $1 }' words.txt | head -n 300 > sorted-pairs.txt
echo 'scale = 200; 4 * a(1); sqrt(2); e(1)' > pi.bc
printf '{"a": [1, 2' > broken.json
printf '1,3d\ng/dolor/s/o/0/g\nw\nq\n' > edits.txt
find tree | sort > list.txt
tar --sort=name --owner=0 --group=0 --mtime=@1700000000 -cf small.tar tree
git -c init.defaultBranch=main init -q repo
(
    cd repo
    git config user.name Tester
    git config user.email tester@example.org
    git config gc.auto 0
    export GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000'
    cp ../words.txt a.txt
    git add a.txt && git commit -q -m 'First'
    cp ../words2.txt a.txt
    cp ../table.csv .
    git add . && git commit -q -m 'Second'
    echo changed >> table.csv
)
find . -exec touch -h -d @1700000000 {} +
