# opencl.sh: for tests on an OpenCL device. Source it after check.sh.
#   need_opencl        ends the test as skipped when there is no device
# PoCL warns to stderr about every program; its own cache lies below BUILD.
export SN_WAIT=1                      # not answers of the ready tier
export POCL_CACHE_DIR=${POCL_CACHE_DIR:-$BUILD/tests/pocl}
mkdir -p "$POCL_CACHE_DIR"

need_opencl() {
    local said
    said=$("$SINTER" run examples/add_relu.onnxtxt -d n=5 --device opencl 2>&1 >/dev/null) && return
    case $said in
    *'OpenCL: there is no '*) skip "$(grep -o 'OpenCL: there is no .*' <<<"$said")"; finish ;;
    esac
}
