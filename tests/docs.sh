#!/bin/bash
# limit: 600
# The documents tell the truth: every command of a ```console block in README.md and docs/ is run, and each line that the
# document shows under it must come out, in that order; what is masked: times, names of kernels, and "..." for anything.
# Every link leads somewhere. Then the README's C program is compiled and run.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
SINTER=${SINTER:-$PWD/build/sinter}
BUILD=${BUILD:-$PWD/build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SN_CACHE=$work/cache
mkdir -p build                          # where the documents put what they make
passed=0 failed=0 skipped=0
wrong() { printf '%s\n' "$1"; failed=$((failed + 1)); }

# A line of a document as a pattern of bash; then lines of output in the same form.
mask() {
    sed -E 's/[[:space:]]+/ /g; s/^ //; s/ $//
        s/\bk_[0-9a-f]{16}\b/k_0/g; s/[0-9.]+ (us|ms|s)\b/0 s/g; s/medians of [0-9]+ runs/medians of 0 runs/; s/is [0-9.]+ times as fast/is 0 times as fast/'
}
pattern() { mask | sed -E 's/[][*?\\]/\\&/g; s/\.\.\./*/g'; }

check_block() {         # WHERE COMMAND, expected lines in $work/want
    local where=$1 command=$2 status got
    if [[ $command == ./dev* ]]; then skipped=$((skipped + 1)); return; fi
    bash -c "${command//build\/sinter/\"$SINTER\"}" >"$work/out" 2>&1 </dev/null
    status=$?
    if [ $status != 0 ]; then
        wrong "$where: exit status $status: $command"
        head -n 20 "$work/out"
        return
    fi
    mask <"$work/out" >"$work/got"
    exec 3<"$work/got"
    while IFS= read -r want; do
        [ -n "$want" ] || continue
        while :; do
            if ! IFS= read -r got <&3; then
                wrong "$where: this line is not in the output (any more, or not in this order) of $command"
                printf '  %s\n' "$want"
                exec 3<&-
                return
            fi
            # shellcheck disable=SC2053
            [[ $got == $want ]] && break
        done
    done < <(pattern <"$work/want")
    exec 3<&-
    passed=$((passed + 1))
}

for doc in README.md docs/*.md; do
    n=0 inside=0 command="" where=""
    while IFS= read -r line; do
        n=$((n + 1))
        if [[ $line == '```'* ]]; then
            [ -z "$command" ] || check_block "$where" "$command"
            command=""
            [[ $line == '```console' ]] && inside=1 || inside=0
        elif [ $inside = 1 ] && [[ $line == '$ '* ]]; then
            [ -z "$command" ] || check_block "$where" "$command"
            command=${line#'$ '} where=$doc:$n
            : >"$work/want"
        elif [ $inside = 1 ]; then
            printf '%s\n' "$line" >>"$work/want"
        fi
    done <"$doc"
done

# ---- links: the file is there, and the heading ------------------------------------------------------------------------
slugs() { sed -nE 's/^#+ +//p' "$1" | tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'; }
for doc in README.md docs/*.md; do
    while IFS= read -r link; do
        file=${link%%#*} anchor=""
        [[ $link == *'#'* ]] && anchor=${link#*#}
        to=$doc
        [ -z "$file" ] || to=$(dirname "$doc")/$file
        if [ ! -e "$to" ]; then wrong "$doc: a link to $link, which is not there"
        elif [ -n "$anchor" ] && ! slugs "$to" | grep -qxF -- "$anchor"; then wrong "$doc: a link to $link: no such heading"
        else passed=$((passed + 1))
        fi
    done < <(grep -oE '\]\([^)[:space:]]+\)' "$doc" | sed -E 's/^\]\(//; s/\)$//' | grep -v '^[a-z]*:')
done

# ---- the README's program ---------------------------------------------------------------------------------------------
awk '/^```c$/ { on = 1; next } /^```/ { on = 0 } on' README.md >"$work/readme.txt"
{
    printf '#include <stdio.h>\n'
    grep '^#include' "$work/readme.txt"
    printf 'int main(void)\n{\n'
    grep -v '^#include' "$work/readme.txt"
    printf 'else printf("%%d %%d\\n", (int)out[0].rank, (int)out[0].dims[1]);\nsn_tensor_release(&out[0]);\nsn_program_free(program);\nsn_model_free(model);\nreturn 0;\n}\n'
} >"$work/readme.c"
flags=$(grep -q 'SINTER_SANITIZE:STRING=address' "$BUILD/CMakeCache.txt" 2>/dev/null && echo -fsanitize=address,undefined)
# shellcheck disable=SC2086
if ! cc -std=c11 -Wall -Wextra -Werror $flags -Iinclude "$work/readme.c" -L"$BUILD" -lsinter -Wl,-rpath,"$BUILD" -o "$work/readme" 2>"$work/out"; then
    wrong "README.md: its C program does not compile"
    cat "$work/out"
elif [ "$("$work/readme" 2>&1)" != "2 768" ]; then
    wrong "README.md: its C program printed: $("$work/readme" 2>&1 | head -n 5)"
else
    passed=$((passed + 1))
fi
printf '%d passed, %d failed, %d skipped\n' $passed $failed $skipped
[ $failed = 0 ]
