#!/bin/bash
# tests/onnx/conformance.sh in the other modes: one kernel for each operator, the reference interpreter, and the ready tier.
# limit: 3600
export MODES="unfused interpreter ready"
. "$(dirname "$0")/../onnx/conformance.sh"
