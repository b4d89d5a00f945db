import collections
import dataclasses
import functools
import itertools
import unicodedata


@dataclasses.dataclass(order=True)
class Point:
    x: int
    y: int


@functools.lru_cache(maxsize=None)
def paths(p):
    if p.x == 0 or p.y == 0:
        return 1
    return paths(Point(p.x - 1, p.y)) + paths(Point(p.x, p.y - 1))


Point.__hash__ = lambda self: self.x * 1000 + self.y
print(paths(Point(30, 30)))
print(collections.Counter("the quick brown fox jumps over the lazy dog").most_common(5))
print(list(itertools.islice(itertools.permutations("abcd"), 7, 12)))
print([unicodedata.name(c) for c in "aβ中"])
print(3**400 % 10**40, 10**60 // 7, (2**127 - 1).bit_length())
try:
    {}["missing"]
except KeyError as e:
    print("caught", e)
