"""judge.py MODE LIST JSON KNOWN: compares what `sinter conformance --json` said of the cases in LIST with the list of known failures.

A known failure counts as skipped; a failure that is not listed, or a listed one that passes, as failed. A reason that begins "MODE only: " holds for that mode.
Last line: passed, failed, skipped."""
import json
import sys

mode, cases, result, known_file = sys.argv[1:5]
cases = open(cases).read().split("\n")[:-1]
try:
    said = json.load(open(result))
except ValueError as e:
    print("FAILED: %s: no verdicts: %s" % (mode, e))
    print(0, max(1, len(cases)), 0)
    sys.exit()
known = {}
for line in open(known_file):
    if line.startswith("#") or "\t" not in line:
        continue
    case, reason = line.rstrip("\n").split("\t", 1)
    only = reason.split(" only: ")[0] if " only: " in reason else mode
    if only == mode:
        known[case] = reason
failures = {f["case"]: f["reason"] for f in said["failures"]}
skips = {f["case"] for f in said["skips"]}
passed = failed = skipped = 0
for case in cases:
    if case in failures and case in known:
        skipped += 1
    elif case in failures:
        failed += 1
        print("FAILED: %s: %s: %s" % (mode, case, failures[case]))
    elif case in skips:
        skipped += 1
    elif case in known:
        failed += 1
        print("FAILED: %s: %s passes, but tests/onnx/known.txt lists it: %s" % (mode, case, known[case]))
    else:
        passed += 1
if passed + failed + skipped != said["passed"] + said["failed"] + said["skipped"]:
    failed += 1
    print("FAILED: %s: %d cases were asked, %d judged" % (mode, len(cases), said["passed"] + said["failed"] + said["skipped"]))
print(passed, failed, skipped)
