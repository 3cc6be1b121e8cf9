# offline.sh: kernels compiled for a GPU that is not there. Source it after check.sh and cases.sh.
#   compile_offline MODEL [FLAG...]    all kernels of a model for sm_90a; no kernel may need local memory (what does not fit the registers)
need_nvrtc() {
    local said
    said=$(SN_CACHE=$T/kernels "$SINTER" explain examples/add_relu.onnxtxt -d n=5 --device cuda:sm_90a 2>&1 >/dev/null) && return
    skip "no NVRTC: $(tail -n 1 <<<"$said" | cut -c1-120)"
    finish
}

compile_offline() {
    local log
    if ! log=$("$SINTER" explain "$@" --device cuda:sm_90a 2>&1 </dev/null); then
        bad "$1: $(tail -n 3 <<<"$log")"
        return
    fi
    grep -q '[0-9] registers' <<<"$log" || { bad "$1: no kernel was compiled"; return; }
    if grep -E '[0-9] registers' <<<"$log" | grep -qvE ' 0 B spilled'; then
        bad "$1: spills: $(grep -E '[0-9] registers' <<<"$log" | grep -vE ' 0 B spilled' | sort | uniq -c | head -n 3 | tr -s ' \n' ' ')"
    else good; fi
}
