#!/usr/bin/env python3
"""regret.py SINTER MODEL [FLAG...]: each fused kernel against the kernels of its operators when nothing is fused.

Kernels of both plans that share an operator belong together; of each such set the sum of its times is compared. Fused and unfused runs take turns (ROUNDS in the
environment, default 9: processes, which find their kernels compiled after the first); times are medians. Sets under 2 us are left out of the count.
What moves data (a Transpose) and has vanished into the addresses of the kernels before and after it belongs to these: they do its work."""
import collections, json, os, statistics, subprocess, sys

ROUNDS = int(os.environ.get("ROUNDS", "9"))
NOISE = 0.002                             # ms


def kernels(sinter, model, flags):
    out = subprocess.run([sinter, "explain", model, "--json", *flags], capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"regret: {model}: {out.stderr.strip()[-300:]}")
    found = []
    for i, segment in enumerate(json.loads(out.stdout)["segments"]):
        for j, k in enumerate(segment["kernels"]):
            if not k["once"]:
                found.append((i, j, k["kind"], [(i, o) for o in k["operators"]], k["ms"] or 0, [(i, o) for o in k.get("moves", [])]))
    return found


def main():
    sinter, model, flags = sys.argv[1], sys.argv[2], sys.argv[3:]
    times, plan = [collections.defaultdict(list), collections.defaultdict(list)], [None, None]
    for r in range(ROUNDS + 1):
        for way in (0, 1):
            found = kernels(sinter, model, flags + (["--no-fuse"] if way else []))
            plan[way] = found
            for i, j, _, _, ms, _ in found if r else ():
                times[way][i, j].append(ms)
    parent = {}

    def root(x):
        while parent.setdefault(x, x) != x:
            x = parent[x]
        return x

    for way in (0, 1):
        for i, j, _, operators, _, _ in plan[way]:
            for o in operators:
                parent[root(o)] = root((way, i, j))
    computed = {o for k in plan[0] for o in k[3]}
    moved = {o for k in plan[1] for o in k[3] if o not in computed}
    for i, j, _, _, _, moves in plan[0]:
        for o in moves:
            if o in moved:
                parent[root(o)] = root((0, i, j))
    sets = collections.defaultdict(lambda: [0.0, 0.0, 0, 0, []])
    for way in (0, 1):
        for i, j, kind, operators, _, _ in plan[way]:
            s = sets[root((way, i, j))]
            s[way] += statistics.median(times[way][i, j])
            s[2 + way] += 1
            if way == 0:
                s[4].append(f"{kind}: {', '.join(o for _, o in operators)}")
    rows = sorted(((s[0] / s[1] if s[1] else 9.99, s) for s in sets.values() if max(s[0], s[1]) >= NOISE and s[2] and s[3]), key=lambda r: -r[0])
    for ratio, s in rows:
        print(f"{ratio:6.2f} {s[0]:9.3f} ms of {s[2]:3d} {s[1]:9.3f} ms of {s[3]:3d}  {'; '.join(s[4])[:150]}")
    worse = [r for r in rows if r[0] > 1.02]
    gone = sum(s[1] for s in sets.values() if not s[2])
    total = sum(s[0] for _, s in rows), sum(s[1] for _, s in rows)
    print(f"{os.path.basename(os.path.dirname(model)) or model}: {len(worse)} of {len(rows)} fused kernels above 1.02 of their parts; in all {total[0]:.3f} ms against {total[1]:.3f} ms, "
          f"and {gone:.3f} ms of operators that need no kernel any more")


main()
