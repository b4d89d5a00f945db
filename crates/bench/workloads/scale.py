# A long run in little memory, or random writes into a large list.
# scale.py work ROUNDS | scale.py memory MIB WRITES
import json
import sys


def work(rounds):
    table = {"k%d" % i: [i, i * 1.5, "s" * (i % 17)] for i in range(500)}
    x, total, words = 42, 0.0, {}
    for n in range(rounds):
        for _ in range(40):
            table = json.loads(json.dumps(table))
        numbers = []
        for i in range(200_000):
            x = (x * 1103515245 + 12345) & 0x7FFFFFFF
            numbers.append(x)
            total += (x % 1000) ** -1.5 if x % 1000 else 1.0
        for v in numbers:
            words[v % 9973] = words.get(v % 9973, 0) + v
        numbers.sort()
        total += numbers[len(numbers) // 2]
    return total, max(words.values()), len(table)


def memory(mib, writes):
    cells = [0] * (mib * 131072)
    x = 42
    for _ in range(writes):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF
        cells[x % len(cells)] = x
    return sum(cells[::4096])


arguments = [int(a) for a in sys.argv[2:]]
print({"work": work, "memory": memory}[sys.argv[1]](*arguments))
