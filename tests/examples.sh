#!/bin/bash
# Builds the examples against an installed tree, with pkg-config (shared and static) and with CMake, and runs them.
# limit: 600
. "$(dirname "$0")/lib/check.sh"

ok "installs" cmake --install "$BUILD" --prefix "$T/prefix"
prefix=$(realpath "$T/prefix")
libdir=$(dirname "$(find "$prefix" -name libsinter.a | head -n 1)")
export PKG_CONFIG_PATH=$libdir/pkgconfig LD_LIBRARY_PATH=$libdir
sanitized=$(grep -c '^SINTER_SANITIZE:[A-Z]*=..*' "$BUILD/CMakeCache.txt")
[ "$sanitized" = 0 ] || { skip "a sanitized library does not link into plain programs"; finish; }

for f in bin/sinter include/sinter.h; do ok "$f is there" test -f "$prefix/$f"; done
for f in libsinter.so libsinter.a pkgconfig/sinter.pc cmake/sinter/sinterConfig.cmake; do ok "$f is there" test -f "$libdir/$f"; done
ok "the header is C99 and pedantic" cc -std=c99 -Wall -Wextra -pedantic -Werror -fsyntax-only -x c -I"$prefix/include" - <<<'#include <sinter.h>'
if command -v c++ >/dev/null; then
    ok "the header is C++" c++ -Wall -Wextra -Werror -fsyntax-only -x c++ -I"$prefix/include" - <<<'#include <sinter.h>'
fi
exported=$(nm -D --defined-only "$libdir/libsinter.so" | awk '{ print $3 }' | grep -v '^sn_' || true)
ok "the shared library exports sn_* only, not: $exported" test -z "$exported"
exported=$(nm -g --defined-only "$libdir/libsinter.a" 2>/dev/null | awk 'NF == 3 { print $3 }' | grep -v '^sn_' || true)
ok "the static library exports sn_* only, not: $exported" test -z "$exported"
ok "no path of the build in sinter.pc" bash -c "! grep -q '$(realpath "$BUILD")' '$libdir/pkgconfig/sinter.pc'"

cat >"$T/net.onnxtxt" <<'END'
<ir_version: 10, opset_import: ["" : 21]>
net (float[N, 4] x, float[4, 3] w) => (float[N, 3] y)
{ p = MatMul(x, w)
  y = Relu(p) }
END

run_all() {                             # HOW FOLDER SUFFIX
    expect 0 '^0 3 0 1$' "$2/add_relu$3"
    expect 0 '^output y: f32 \[1,3\] 4 4 4$' "$2/run_model$3" "$T/net.onnxtxt"
    expect 1 'IO: .*nothing.onnx' "$2/run_model$3" "$T/nothing.onnx"
    expect 0 '64 x 33: sum 64' "$2/dynamic$3"
    expect 0 'Softmax' "$2/dynamic$3"
}

mkdir -p "$T/shared" "$T/static"
for e in run_model add_relu dynamic; do
    ok "pkg-config: $e" bash -c "cc -std=c11 -Wall -Wextra -Werror -D_GNU_SOURCE= examples/$e.c \$(pkg-config --cflags --libs sinter) -lm -o '$T/shared/$e'"
    ok "pkg-config, static: $e" bash -c "cc -std=c11 -Wall -Wextra -Werror examples/$e.c \$(pkg-config --cflags sinter) '$libdir/libsinter.a' \
        \$(pkg-config --static --libs sinter | sed 's/-lsinter//') -lm -o '$T/static/$e'"
done
run_all pkg-config "$T/shared" ""
run_all static "$T/static" ""

ok "cmake: configure" cmake -S examples -B "$T/cmake" -DCMAKE_PREFIX_PATH="$prefix"
ok "cmake: build" cmake --build "$T/cmake"
run_all cmake "$T/cmake" ""
run_all cmake "$T/cmake" "_static"

# An installed tree can be moved.
mv "$prefix" "$prefix.moved"
export PKG_CONFIG_PATH=${PKG_CONFIG_PATH/prefix/prefix.moved} LD_LIBRARY_PATH=${LD_LIBRARY_PATH/prefix/prefix.moved}
ok "pkg-config follows a moved tree" bash -c "cc examples/add_relu.c \$(pkg-config --cflags --libs sinter) -o '$T/moved' && '$T/moved'"
expect 0 '^sinter [0-9.]+$' "$prefix.moved/bin/sinter" --version
finish
