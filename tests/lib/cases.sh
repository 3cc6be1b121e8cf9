# cases.sh: what the scripts over official and other cases share. Source it after check.sh.
#   need_cases FILE...            ends the test as skipped when the test material is not there
#   unpack ARCHIVE                into CASES, once for each state of the archive
#   judge MODE LIST [FLAG...]     runs the folders named in LIST (below CASES) and compares the failures with tests/onnx/known.txt
# Lines of known.txt: case, tab, reason. Lines of tolerance.txt: case, tab, absolute tolerance, tab, why. '#' begins a comment.
CASES=$BUILD/cases

need_cases() {
    local f
    for f; do
        [ -n "${SN_CASES:-}" ] && [ -e "$SN_CASES/$f" ] && continue
        skip "no test material: SN_CASES/$f"
        finish
    done
}

unpack() {
    local archive=$SN_CASES/$1 stamp
    stamp=$CASES/.$1
    mkdir -p "$CASES"
    (
        flock 9
        [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(cksum <"$archive")" ] && exit 0
        tar -xJf "$archive" -C "$CASES" && cksum <"$archive" >"$stamp"
    ) 9>"$CASES/.lock"
}

judge() {
    local mode=$1 list=$2 tolerances atol; shift 2
    : >"$T/plain"
    awk -F'\t' 'FNR == NR { if ($0 !~ /^#/ && NF > 1) t[$1] = $2; next } { print ($1 in t ? t[$1] : "-") "\t" $1 }' tests/onnx/tolerance.txt "$list" >"$T/sorted"
    tolerances=$(cut -f1 "$T/sorted" | sort -u)
    for atol in $tolerances; do
        awk -F'\t' -v a="$atol" '$1 == a { print $2 }' "$T/sorted" >"$T/list"
        (cd "$CASES" && xargs -d '\n' "$(realpath "$OLDPWD/$SINTER" 2>/dev/null || realpath "$SINTER")" conformance --json "$@" $([ "$atol" = - ] || echo --atol "$atol")) <"$T/list" >"$T/$atol.json"
        python3 tests/lib/judge.py "$mode" "$T/list" "$T/$atol.json" tests/onnx/known.txt >"$T/verdict"
        grep -v '^[0-9]* [0-9]* [0-9]*$' "$T/verdict"
        read -r p f s < <(tail -n 1 "$T/verdict")
        passed=$((passed + ${p:-0})) failed=$((failed + ${f:-1})) skipped=$((skipped + ${s:-0}))
    done
}
