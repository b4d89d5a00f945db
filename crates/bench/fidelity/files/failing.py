import sys


def deep(n):
    return deep(n - 1) if n else 1 // n


print("before")
sys.stdout.flush()
deep(5)
