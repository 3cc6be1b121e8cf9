#!/bin/bash
# sinter demo add-relu: the values, and the traffic that the programs' own evidence counts.
. "$(dirname "$0")/../lib/check.sh"
expect 0 '^X: f32\[4\] = \[-3, 1, 2, -1\]$' "$SINTER" demo add-relu
expect 0 '^B: f32\[4\] = \[1, 2, -4, 2\]$' "$SINTER" demo add-relu
expect 0 '^A: f32\[4\] = \[-2, 3, -2, 1\]$' "$SINTER" demo add-relu
expect 0 '^Y: f32\[4\] = \[0, 3, 0, 1\]$' "$SINTER" demo add-relu
expect 0 '^separate +2 kernels, +80 bytes = 5Nb$' "$SINTER" demo add-relu
expect 0 '^fused +1 kernel, +48 bytes = 3Nb$' "$SINTER" demo add-relu
expect 0 '^fused, and A is wanted too +1 kernel, +64 bytes = 4Nb$' "$SINTER" demo add-relu --threads 1
expect 0 '^120 shapes .* 0 wrong' "$SINTER" demo add-relu
json 'j["right"] and j["Y"] == [0, 3, 0, 1] and j["fused"]["Nb"] == 3 and j["separate"]["Nb"] == 5 and j["fused_keeping_A"]["Nb"] == 4' "$SINTER" demo add-relu --json
json 'j["shapes"]["wrong"] == 0 and j["shapes"]["checked"] == 120' "$SINTER" demo add-relu --json
# with a fusion less the figures change: they are counted, not printed
expect 1 '^fused +2 kernels, +80 bytes = 5Nb +WRONG$' env SN_LIMIT=0 "$SINTER" demo add-relu
expect 0 'add-relu' "$SINTER" demo
refuse "no demo 'frob'" "$SINTER" demo frob
finish
