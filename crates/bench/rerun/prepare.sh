#!/bin/sh
# Makes further inputs of the commands in cases.txt, behind those of ../fidelity.
set -eu
export LC_ALL=C.UTF-8 TZ=UTC

gcc -O1 -pthread queue.c -o queue
if command -v zip > /dev/null; then
    zip -q -X packed.zip words.txt table.csv
fi
if command -v javac > /dev/null; then
    javac -d classes Mixed.java
fi
