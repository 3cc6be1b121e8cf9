#!/bin/bash
# tests/onnx/conformance.sh in the other modes: one kernel for each operator, and the reference interpreter.
# limit: 3600
export MODES="unfused interpreter"
. "$(dirname "$0")/../onnx/conformance.sh"
