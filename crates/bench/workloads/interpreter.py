"""Interpreter work: number crunching, objects, JSON, regular expressions, dictionaries, sorting."""
import json
import re
import sys


class Vector:
    __slots__ = ("x", "y", "z")

    def __init__(self, x, y, z):
        self.x, self.y, self.z = x, y, z

    def plus(self, other, factor):
        return Vector(
            self.x + other.x * factor, self.y + other.y * factor, self.z + other.z * factor
        )

    def square(self):
        return self.x * self.x + self.y * self.y + self.z * self.z


def orbit(steps):
    place, speed = Vector(1.0, 0.1, -0.2), Vector(0.0, 0.9, 0.3)
    for _ in range(steps):
        pull = -(place.square() ** -1.5)
        speed = speed.plus(place, pull * 0.001)
        place = place.plus(speed, 0.001)
    return place.x


def sieve(limit):
    marks = bytearray([1]) * limit
    for i in range(2, int(limit**0.5) + 1):
        if marks[i]:
            for j in range(i * i, limit, i):
                marks[j] = 0
    return sum(marks) - 2


def documents(rounds):
    data = {
        f"entry-{i}": {"id": i, "share": i / 7, "tags": ["t" * (i % 11)] * (i % 5), "gone": None}
        for i in range(400)
    }
    size = 0
    for _ in range(rounds):
        text = json.dumps(data, sort_keys=True)
        size += len(text)
        data = json.loads(text)
    return size


def matches(rounds):
    log = "\n".join(
        f"10.0.{i % 256}.{i % 199} - [{i % 31:02d}/Nov] \"{'GET' if i % 3 else 'POST'} /p/{i * 17}\" {200 + i % 5}"
        for i in range(1200)
    )
    line = re.compile(r'^(\d+(?:\.\d+){3}) - \[(\d\d)/\w+\] "(GET|POST) (/\S+)" (\d+)$', re.M)
    return sum(int(m.group(5)) for _ in range(rounds) for m in line.finditer(log))


def counting(amount):
    state, values = 7, []
    for _ in range(amount):
        state = (state * 69069 + 1) & 0xFFFFFFFF
        values.append(state >> 5)
    buckets = {}
    for v in values:
        buckets[v % 7919] = buckets.get(v % 7919, 0) ^ v
    values.sort()
    ranked = sorted(buckets.items(), key=lambda pair: (-pair[1], pair[0]))
    return values[amount // 3], ranked[:2]


scale = int(sys.argv[1])
print(orbit(35000 * scale))
print(sieve(300000 * scale))
print(documents(45 * scale))
print(matches(45 * scale))
print(counting(150000 * scale))
