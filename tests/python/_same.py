"""_same.py A B: two files of JSON objects, one a line, hold the same: texts equal, numbers within 1e-3 of each other, absolute and relative. There must be some."""
import json
import sys


def same(a, b):
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return isinstance(b, float) and abs(a - b) <= 1e-3 + 1e-3 * abs(b)
    return a == b


a, b = ([json.loads(line) for line in open(path)] for path in sys.argv[1:3])
if not a or len(a) != len(b):
    sys.exit(f"{len(a)} and {len(b)} lines")
for k, (x, y) in enumerate(zip(a, b), 1):
    if not same(x, y):
        sys.exit(f"line {k}:\n  {json.dumps(x)[:400]}\n  {json.dumps(y)[:400]}")
print(f"{len(a)} lines are the same; the first: {json.dumps(a[0])[:200]}")
