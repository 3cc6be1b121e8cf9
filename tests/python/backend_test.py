"""The official runner of the ONNX backend tests over sinter.backend.

    python backend_test.py [--excluded FILE] [--part K/N] [--interpret] [WORD...]     cases with a WORD in their name; part K of N: every N-th

FILE has one exclusion a line: a regular expression, then the reason. Prints each failure, then one line "N passed, N failed, N skipped"; an exclusion
which matches no case counts as a failure, and so does a case that is excluded but passes.
"""
import argparse
import io
import re
import sys
import unittest

import numpy as np
import onnx.backend.test

import sinter.backend


class Result(unittest.TestResult):
    def __init__(self, quiet=False):
        super().__init__()
        self.good, self.bad, self.quiet = [], [], quiet

    def addSuccess(self, test):
        self.good.append(test._testMethodName)

    def addFailure(self, test, error):
        message = str(error[1]).strip()
        self.bad.append((test._testMethodName, error[0].__name__ + ": " + " | ".join(message.splitlines()[:6])[:400]))

        if not self.quiet:
            print("FAILED: %s: %s" % self.bad[-1], file=sys.__stdout__, flush=True)

    addError = addFailure


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--excluded")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--interpret", action="store_true", help="the reference interpreter instead of kernels")
    parser.add_argument("words", nargs="*")
    args = parser.parse_args()
    excluded = []
    if args.excluded:
        for line in open(args.excluded):
            if line.strip() and not line.startswith("#"):
                pattern, _, reason = line.strip().partition(" ")
                excluded.append((re.compile(pattern), reason.strip()))
    runner = onnx.backend.test.BackendTest(sinter.backend.SinterBackend, __name__, {"interpret": True} if args.interpret else {})
    suites = [unittest.defaultTestLoader.loadTestsFromTestCase(case) for case in runner.test_cases.values()]
    tests = sorted((t for suite in suites for t in suite if t._testMethodName.endswith("_cpu")), key=lambda t: t._testMethodName)
    names = [t._testMethodName for t in tests]
    bad = 0
    for pattern, reason in excluded:
        if not reason:
            print(f"FAILED: the exclusion {pattern.pattern} has no reason")
            bad += 1
        if not any(pattern.search(n) for n in names):
            print(f"FAILED: the exclusion {pattern.pattern} matches no case")
            bad += 1
    k, n = (int(x) for x in args.part.split("/"))
    tests = [t for i, t in enumerate(tests) if i % n == k - 1 and (not args.words or any(w in t._testMethodName for w in args.words))]
    skipped = 0
    result, expected = Result(), Result(quiet=True)
    np.seterr(all="ignore")
    for t in tests:
        out = any(p.search(t._testMethodName) for p, _ in excluded)
        skipped += out
        stdout, sys.stdout = sys.stdout, io.StringIO()
        try:
            t.run(expected if out else result)
        finally:
            sys.stdout = stdout
    for name in expected.good:
        print(f"FAILED: {name}: it is excluded, but passes")
        bad += 1
    print(f"{len(result.good)} passed, {len(result.bad) + bad} failed, {skipped + len(result.skipped)} skipped", flush=True)
    return 1 if result.bad or bad else 0


if __name__ == "__main__":
    sys.exit(main())
