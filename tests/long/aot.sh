#!/bin/bash
# All official cases and the real models as C files: see tests/onnx/aot.sh.
# limit: 14400
MODES=all
export MODES
exec bash "$(dirname "$0")/../onnx/aot.sh"
