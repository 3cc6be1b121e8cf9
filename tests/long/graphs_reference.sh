#!/bin/bash
# The graphs of tests/onnx/graphs.sh that are listed in known.txt, against onnx.reference: our values are those of the graph as it is written.
# limit: 900
. "$(dirname "$0")/../lib/check.sh"
. "$(dirname "$0")/../lib/cases.sh"
. "$(dirname "$0")/../python/_env.sh"
need_cases graphs.tar.xz
unpack graphs.tar.xz
sed -n 's/^\(graphs\/[^\t]*\)\t.*/\1/p' tests/onnx/known.txt >"$T/names"
"$PY" -W ignore tests/python/reference.py "$SINTER" "$CASES" "$T/names" >"$T/said"
cat "$T/said"
read -r p _ f _ s _ < <(tail -n 1 "$T/said" | tr -d ,)
passed=$((passed + ${p:-0})) failed=$((failed + ${f:-1})) skipped=$((skipped + ${s:-0}))
finish
