#!/bin/bash
# Stands in for sinter-nvrtc beside fake_cuda.c: the same command line; makes a shared object of a kernel's text, with a log as ptxas writes it, or without, as when the
# library had the code from a cache of its own (FAKE_SILENT).
out="" src=""
while [ $# -gt 0 ]; do
    case $1 in
    --version) echo "fake NVRTC 1.0"; exit 0 ;;
    -o) out=$2; shift ;;
    -*) ;;
    *) src=$1 ;;
    esac
    shift
done
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
names=$(grep -oE '__launch_bounds__\([0-9, ]*\) (__cluster_dims__\([0-9, ]*\) )?void k_[0-9a-f]*\([^)]*\)' "$src" |
    sed -E 's/[^)]*\) (__cluster_dims__\(([0-9]+)[^)]*\) )?void (k_[0-9a-f]*)\((.*)\)/\3 0\2 \4/')
{
    cat "$src"
    while read -r name cluster params; do
        echo "extern \"C\" { extern const int ${name}_params[2]; const int ${name}_params[2] = { $(($(tr -cd , <<<"$params" | wc -c) + 1)), $((10#$cluster > 1 ? 10#$cluster : 1)) }; }"
    done <<<"$names"
} >"$src.cc"
${CXX:-g++} -x c++ -std=c++17 -O1 -w -fPIC -shared -ffp-contract=off -fno-strict-aliasing -I "$here" -include fake_kernel.h -o "$out" "$src.cc" || exit 1
{
    printf '\nsinter-nvrtc\n'
    [ -n "${FAKE_SILENT:-}" ] || while read -r name _; do printf "ptxas info    : Compiling entry function '%s' for 'fake'\nptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\nptxas info    : Used 32 registers\n" "$name"; done <<<"$names"
} >>"$out"
