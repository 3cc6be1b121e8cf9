# cases.sh: what the scripts over official and other cases share. Source it after check.sh.
#   need_cases FILE...            ends the test as skipped when the test material is not there
#   unpack ARCHIVE                into CASES, once for each state of the archive
#   judge MODE LIST [FLAG...]     runs the folders named in LIST (below CASES) and compares the failures with KNOWN, default
#                                 tests/onnx/known.txt (case, tab, reason)
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
    local mode=$1 list=$2 p f s sinter; shift 2
    sinter=$(realpath "$SINTER")
    mapfile -t cases <"$list"
    (cd "$CASES" && "$sinter" conformance --json "$@" "${cases[@]}") >"$T/said.json"
    python3 tests/lib/judge.py "$mode" "$list" "$T/said.json" "${KNOWN:-tests/onnx/known.txt}" >"$T/verdict"
    sed '$d' "$T/verdict"
    read -r p f s < <(tail -n 1 "$T/verdict")
    passed=$((passed + ${p:-0})) failed=$((failed + ${f:-1})) skipped=$((skipped + ${s:-0}))
}
