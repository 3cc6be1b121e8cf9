#!/bin/bash
# All kernels of the real models, compiled for sm_90a without a card: none spills.
# limit: 3600
. "$(dirname "$0")/../lib/check.sh"
. "$(dirname "$0")/../lib/cases.sh"
. "$(dirname "$0")/../lib/offline.sh"
. "$(dirname "$0")/../lib/sizes.sh"
need_nvrtc
need_cases models
for m in "$SN_CASES"/models/*/; do
    model_sizes "${m%/}"
    compile_offline "$m/model.onnx" "${sizes[@]}"
done
finish
