#!/usr/bin/env python3
"""regret.py SINTER MODEL [FLAG...]: each fused kernel against the kernels of its operators when nothing is fused.

Kernels of both plans that share an operator belong together; of each such set the sum of its times is compared. Fused and unfused runs take turns, each a process
that measures the model's kernels in many runs and finds them compiled after the first; a set's figure is the median of the rounds' ratios, of two runs that follow
one another, and behind it stands the interval in which that median lies with 95 %. There are ROUNDS of them (in the environment, default 9), and then more, up to
MOST (default 41), until all intervals lie to one side of 1.02. Sets under 2 us are left out, and so are sets of the very same kernels in both plans, which are counted apart.
Behind a set that is above the limit stands the same measured with SN_ALIKE=1, for which the operands of each kernel are read before it: it tells kernels that are slower by
themselves from those that find less in the caches, since the kernel before them does more at once. These count as well. The third line charges what each plan waits
for, the difference of the two, to the set that wrote most of what is read: a fusion that leaves less in the caches must gain more than that. A set passes where both lines do.
What moves data (a Transpose) and has vanished into the addresses of the kernels before and after it belongs to these: they do its work."""
import collections, json, os, statistics, subprocess, sys

ROUNDS = int(os.environ.get("ROUNDS", "9"))
MOST = max(ROUNDS, int(os.environ.get("MOST", "41")))
NOISE = 0.002                             # ms
LIMIT = 1.02


def kernels(sinter, model, flags, alike=False):
    env = dict(os.environ, SN_ALIKE="1") if alike else None
    out = subprocess.run([sinter, "explain", model, "--json", *flags], capture_output=True, text=True, env=env)
    if out.returncode:
        sys.exit(f"regret: {model}: {out.stderr.strip()[-300:]}")
    found = []
    for i, segment in enumerate(json.loads(out.stdout)["segments"]):
        for j, k in enumerate(segment["kernels"]):
            if not k["once"]:
                found.append((i, j, k["kind"], [(i, o) for o in k["operators"]], k["ms"] or 0, [(i, o) for o in k.get("moves", [])], k["name"], [(i, w) for w in k.get("from", [])], k["write_bytes"]))
    return found


def interval(values):
    """Of the median, by order statistics: as many of n fair coins fall on one side as lie outside of it, in 5 % of all cases."""
    v, n, below, term = sorted(values), len(values), 0, 1.0
    total, out = 2.0 ** n, 0.0
    while below < n // 2:
        out += term / total
        if 2 * out > 0.05:
            break
        below += 1
        term = term * (n - below + 1) / below
    at = max(below - 1, 0)
    return v[at], v[n - 1 - at]


def grouped(plan):
    """Sets of (way, segment, kernel), as lists."""
    parent = {}

    def root(x):
        while parent.setdefault(x, x) != x:
            x = parent[x]
        return x

    for way in (0, 1):
        for i, j, _, operators, *_ in plan[way]:
            for o in operators:
                parent[root(o)] = root((way, i, j))
    computed = {o for k in plan[0] for o in k[3]}
    moved = {o for k in plan[1] for o in k[3] if o not in computed}
    for i, j, _, _, _, moves, *_ in plan[0]:
        for o in moves:
            if o in moved:
                parent[root(o)] = root((0, i, j))
    sets = collections.defaultdict(lambda: ([], []))
    for way in (0, 1):
        for k in plan[way]:
            sets[root((way, k[0], k[1]))][way].append(k)
    return list(sets.values())


def compared(sinter, model, ways, sets, alike):
    """Rows (ratio, interval, times of both, set) of sets, how many of them are open, and the number of rounds."""
    times, rounds = [collections.defaultdict(list), collections.defaultdict(list)], 0
    while rounds < MOST:
        for way in (0, 1):
            for i, j, _, _, ms, *_ in kernels(sinter, model, ways[way], alike):
                times[way][i, j].append(ms)
        rounds += 1
        if rounds < ROUNDS:
            continue
        rows, open_ = [], 0
        for s in sets:
            spent = [[sum(times[way][k[0], k[1]][r] for k in s[way]) for r in range(rounds)] for way in (0, 1)]
            middle = [statistics.median(t) for t in spent]
            if max(middle) < NOISE:
                continue
            ratios = [a / b if b else 9.99 for a, b in zip(*spent)]
            low, high = interval(ratios)
            rows.append((statistics.median(ratios), low, high, middle, s))
            open_ += not same(s) and low <= LIMIT < high
        if not open_:
            break
    return sorted(rows, key=lambda r: -r[0]), open_, rounds, times


def same(s):
    return sorted(k[6] for k in s[0]) == sorted(k[6] for k in s[1])


def charged(worse, rows, alike):
    """By set above the limit, the times of both plans of the set that wrote most of what it reads, with all that this one is charged for; none where the model's inputs are read."""
    of = {k[:2]: r for r in rows for k in r[4][0]}
    owes = {id(r[4]): list(r[3]) for r in rows}
    wrote = {k[:2]: k[8] for r in rows for k in r[4][0]}
    writer = {}
    for r in worse:
        from_ = [w for k in r[4][0] for w in k[7] if w in of and of[w] is not r]
        if not from_:
            continue
        writer[id(r[4])] = owed = owes[id(of[max(from_, key=wrote.get)][4])]
        for way in (0, 1):
            owed[way] += max(r[3][way] - alike[id(r[4])][3][way], 0)
    return writer


def main():
    sinter, model, flags = sys.argv[1], sys.argv[2], sys.argv[3:]
    ways = [flags, flags + ["--no-fuse"]]
    sets = grouped([kernels(sinter, model, f) for f in ways])
    both = [s for s in sets if s[0] and s[1]]
    rows, open_, rounds, times = compared(sinter, model, ways, both, False)
    told = [r for r in rows if not same(r[4])]
    worse = [r for r in told if r[0] > LIMIT]
    alike = {id(r[4]): r for r in compared(sinter, model, ways, [r[4] for r in worse], True)[0]} if worse else {}
    owed = charged(worse, rows, alike) if worse else {}
    for ratio, low, high, middle, s in rows:
        text = "; ".join(f"{k[2]}: {', '.join(o for _, o in k[3])}" for k in s[0])
        print(f"{ratio:6.2f} {low:5.2f}..{high:<5.2f}{'=' if same(s) else ' '} {middle[0]:9.3f} ms of {len(s[0]):3d} {middle[1]:9.3f} ms of {len(s[1]):3d}  {text[:140]}")
        if id(s) in alike:
            r = alike[id(s)]
            print(f"{r[0]:6.2f} {r[1]:5.2f}..{r[2]:<5.2f}  {r[3][0]:9.3f} ms        {r[3][1]:9.3f} ms         the same, with operands in the caches alike")
        if id(s) in owed:
            f, u = owed[id(s)]
            print(f"{f / u:6.2f}               {f:9.3f} ms        {u:9.3f} ms         what wrote most of them, charged for the difference")
    still = sum(1 for r in alike.values() if r[0] > LIMIT)
    lost = sum(1 for r in worse if alike[id(r[4])][0] > LIMIT or id(r[4]) not in owed or owed[id(r[4])][0] > LIMIT * owed[id(r[4])][1])
    gone = sum(statistics.median(times[1][k[0], k[1]]) for s in sets if not s[0] for k in s[1])
    total = [sum(r[3][way] for r in rows) for way in (0, 1)]
    print(f"{os.path.basename(os.path.dirname(model)) or model}: {len(worse)} of {len(told)} fused kernels above {LIMIT} of their parts ({open_} within the spread of {rounds} rounds; {still} with operands in the caches alike; "
          f"{lost} with those alike and what they wait for charged to what left it there), "
          f"{len(rows) - len(told)} the same in both plans; in all {total[0]:.3f} ms against {total[1]:.3f} ms, and {gone:.3f} ms of operators that need no kernel any more")


main()
