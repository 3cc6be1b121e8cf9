#!/bin/bash
# tests/onnx/graphs.sh in the other modes: one kernel for each operator, and the reference interpreter.
# limit: 3600
export MODES="unfused interpreter"
. "$(dirname "$0")/../onnx/graphs.sh"
