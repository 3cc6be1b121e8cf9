#!/bin/bash
# lint.sh BUILD: the rules of this tree that a program can check. Messages are file:line; exit 1 if there are any.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
BUILD=${1:?usage: lint.sh BUILD}
SOURCE_FOLDERS=$(ls -d src include cli python/core 2>/dev/null)
bad=0
complain() { printf '%s: %s\n' "$1" "$2"; bad=1; }

# ---- layers and sizes ---------------------------------------------------------------------------------------------
tools/layers.sh || bad=1
tools/doccheck.sh || bad=1

while read -r n file; do
    [ "$file" = total ] || [ "$n" -le 800 ] || complain "$file:800" "$n lines; a file has 800 at most"
done < <(git ls-files -z '*.[ch]' '*.def' '*.inc' '*.py' '*.sh' | xargs -0 wc -l)
mapfile -t sources < <(find $SOURCE_FOLDERS -name '*.[ch]' -o -name '*.def' | LC_ALL=C sort)

# ---- calls that belong to one place ---------------------------------------------------------------------------------
# FILES THAT MAY (a pattern) | CALLS | why. A member (x->free, x.free) is not a call of the C library.
RULES='
src/base/arena\.c|malloc|calloc|realloc|free|aligned_alloc|posix_memalign|strdup|strndup|asprintf|vasprintf|getline~memory comes from arenas and block_alloc
src/base/option\.c|getenv|secure_getenv|setenv|putenv|unsetenv~options.def lists every switch; env_get reads the rest
src/base/error\.c|exit|abort|quick_exit|assert~fail() or ASSERT
src/base/error\.c|setjmp|longjmp|sigsetjmp|siglongjmp~guard_call is the only place that catches
src/rt/.*|_exit|_Exit|dlopen|dlsym|fork|vfork|execv|execve|execvp|execvpe|execl|execlp|execle|posix_spawn|posix_spawnp|system|popen|pthread_create~processes, threads and loaded code belong to rt
none|printf|puts|putchar|vprintf~a library prints nothing to stdout
none|strcpy|strcat|sprintf|vsprintf|gets|strtok|rand|srand|setlocale~unsafe, or changes the state of the whole process
'
check_calls() {
    local file=$1 code rule may why calls hits
    code=$(tools/strip.sh --strings "$file")
    while IFS= read -r rule; do
        [ -n "$rule" ] || continue
        why=${rule#*~}
        rule=${rule%%~*}
        may=${rule%%|*}
        calls=${rule#*|}
        [[ $file =~ ^($may)$ || ( $may == src/rt/* && $file == src/base/sys.c ) ]] && continue
        hits=$(grep -nE "(^|[^A-Za-z0-9_.>*])($calls)[[:space:]]*\(" <<<"$code") || continue
        while IFS= read -r hit; do
            complain "$file:${hit%%:*}" "$(grep -oE "\b($calls)[[:space:]]*\(" <<<"${hit#*:}" | head -n 1)) is not called here: $why"
        done <<<"$hits"
    done <<<"$RULES"
    hits=$(grep -nw 'stdout' <<<"$code") && complain "$file:${hits%%:*}" "a library prints nothing to stdout"
}
for file in "${sources[@]}"; do
    [[ $file == src/* ]] && check_calls "$file"
done

# ---- words ----------------------------------------------------------------------------------------------------------
# A target is known to its own files in gen and rt and to the table of targets; nothing else may depend on one.
for file in "${sources[@]}"; do
    case $file in src/gen/*|src/rt/*|src/api/targets.def|cli/*) continue ;; esac
    while IFS= read -r hit; do
        complain "$file:${hit%%:*}" "names a target; only gen, rt and api/targets.def know them"
    done < <(tools/strip.sh "$file" | grep -niE '\b(cuda|opencl|nvrtc|cublas|cudnn|ptx|hip|rocm)' || true)
done
# Paths of one person's machine.
while IFS= read -r hit; do
    complain "${hit%:*}" "a path of somebody's machine"
done < <(git grep -nIoE '/(wor[k]|hom[e]/[a-z]+)/' -- . || true)

# ---- names ----------------------------------------------------------------------------------------------------------
# Static functions and files have a name of their own in the whole tree: a search finds one place, and the sources can
# be compiled as one file.
for file in "${sources[@]}"; do
    [[ $file == src/*.c ]] || continue
    tools/strip.sh --strings "$file" |
        sed -nE "s/^(_Noreturn )?static ([^=;{(]*[ *])?([A-Za-z_0-9]+)\(.*/\3/;T;=;p" |
        paste - - | awk -v f="$file" '{ print $2, f ":" $1, f }'
done | sort -u -k1,1 -k3,3 | awk '
    $1 == name { print $2 ": static name " $1 " is also in " place; found = 1 }
    { name = $1; place = $2 }
    END { exit found }' || bad=1
find src -name '*.c' -printf '%f\n' | sort | uniq -d | while read -r name; do
    echo "src/*/$name:1: two files have this name"
done | { ! grep .; } || bad=1

# ---- globals that change ----------------------------------------------------------------------------------------------
# FILE NAME of those that may: none so far.
MAY_CHANGE=""
while read -r object symbol; do
    file=${object#*.dir/}
    file=${file%.o}
    [[ $MAY_CHANGE == *"$file $symbol"* ]] || complain "$file:1" "global or static variable '$symbol' can change"
done < <(find "$BUILD/CMakeFiles/sinter_objects.dir" -name '*.o' 2>/dev/null | while read -r object; do
    source=${object#*.dir/}
    [ -f "${source%.o}" ] || continue   # the object of a file that is gone
    objdump -t "$object" | awk -v o="$object" '
        $3 == "O" && $4 ~ /^\.(data|bss|data\.rel|data\.rel\.local)$/ { print o, $NF }
        $2 == "O" && $3 ~ /^\.(data|bss|data\.rel|data\.rel\.local)$/ { print o, $NF }'
done)

# ---- formatting: the files that tools/formatted lists; others keep hand-made tables ------------------------------------
while read -r file; do
    [ -f "$file" ] || continue
    clang-format --dry-run -Werror "$file" >/dev/null 2>&1 || complain "$file:1" "is not formatted: ./dev fmt $file"
done < <(grep -v '^#' tools/formatted 2>/dev/null)

# ---- clang-tidy: again only for files that changed, or when a header did ------------------------------------------------
mkdir -p "$BUILD/tidy"
common=$({ cat .clang-tidy; find $SOURCE_FOLDERS -name '*.h' -o -name '*.def' | LC_ALL=C sort | xargs cat; } | cksum)
tidy_one() {
    local file=$1 stamp sum
    stamp=$BUILD/tidy/${file//\//_}
    sum="$(cksum <"$file") $common"
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$sum" ] && return 0
    if clang-tidy -p "$BUILD" --quiet "$file" >"$stamp.log" 2>/dev/null; then
        echo "$sum" >"$stamp"
        rm -f "$stamp.log"
    else
        grep -E '^[^ ]+:[0-9]+:[0-9]+: (error|warning):' "$stamp.log" | sed "s|^$PWD/||"
        return 1
    fi
}
export -f tidy_one
export BUILD common
find $SOURCE_FOLDERS -name '*.c' | LC_ALL=C sort | xargs -r -n 1 -P 2 bash -c 'tidy_one "$1"' - || bad=1

[ $bad = 0 ] && echo "lint: nothing to complain about"
exit $bad
