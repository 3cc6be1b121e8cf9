#!/bin/bash
# The structures of the C library that Python code lays out by hand are as the header has them.
. "$(dirname "$0")/lib/check.sh"
cat >"$T/sizes.c" <<'C'
#include <stddef.h>
#include <stdio.h>
#include "sinter.h"
int main(void) { printf("%zu %zu %zu %zu %zu\n", sizeof(sn_tensor), offsetof(sn_tensor, on_device), sizeof(sn_error), sizeof(sn_options), offsetof(sn_options, allow)); return 0; }
C
ok 'a program of sizes' cc -I include -o "$T/sizes" "$T/sizes.c"
if command -v python3 >/dev/null; then
    expect 0 "^$("$T/sizes")\$" env PYTHONPATH=bench PYTHONDONTWRITEBYTECODE=1 python3 -c 'import ctypes, sn; print(ctypes.sizeof(sn.Tensor), sn.Tensor.on_device.offset, ctypes.sizeof(sn.Error), ctypes.sizeof(sn.Options), sn.Options.allow.offset)'
else skip "no python3"; fi
finish
