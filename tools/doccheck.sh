#!/bin/bash
# doccheck.sh [FILE...]: what the documents name must exist. Messages are file:line; exit 1 if there are any.
#
# Checked in README.md, CONTRIBUTING.md and docs/: targets of links; in code, between backquotes or indented or fenced:
# paths, names of source files, functions written as name(), `./dev COMMAND`, `sinter COMMAND --flag`, variables SN_NAME.
# And the other way round: each switch stands in docs/debug.md, each fusion rule and reason in docs/fusion.md, each command somewhere.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
bad=0
complain() { printf '%s: %s\n' "$1" "$2"; bad=1; }

mapfile -t docs < <(if [ $# -gt 0 ]; then printf '%s\n' "$@"; else ls README.md CONTRIBUTING.md docs/*.md; fi)
mapfile -t tree < <({ git ls-files; git ls-files -o --exclude-standard; } 2>/dev/null)
declare -A is_name is_dev is_command is_flag is_env
for f in "${tree[@]}"; do is_name[${f##*/}]=1; done
for w in $(sed -n 's/^cmd_\([a-z]*\)() *{.*/\1/p' dev); do is_dev[$w]=1; done
for w in $(sed -n 's/^COMMAND( *\([a-z_]*\),.*/\1/p' cli/commands.def); do is_command[$w]=1; done
while IFS='|' read -r flag commands; do is_flag[--${flag//_/-}]=" $commands "; done < <(
    sed -n 's/^FLAG( *\([a-z_]*\), *[^,]*, *\(NULL\|"[^"]*"\), *"\([^"]*\)".*/\1|\3/p' cli/flags.def)
for w in $(sed -n 's/^OPT( *\([a-z0-9_]*\),.*/\1/p' src/base/options.def); do is_env[SN_${w^^}]=1; done
switches=("${!is_env[@]}")
for w in $(grep -hoE '\bSN_[A-Z0-9_]+' include/sinter.h tools/run_tests.sh | sort -u); do is_env[$w]=1; done
functions=$(cat $(printf '%s\n' "${tree[@]}" | grep -E '^(src|cli|include|tests)/.*\.(c|h|def|inc)$') | grep -oE '\b[a-z_][a-z0-9_]*\(' | sort -u)
other_flags=$(cat dev tools/*.sh tests/*.sh tests/fuzz/*.sh | grep -oE -- '--[a-z][a-z-]+' | sort -u)

# Places in a document: "LINE code TEXT" for code, "LINE link TARGET" for links.
places() {
    awk '
        /^ *```/ { fenced = !fenced; next }
        fenced || /^    / { print NR, "code", $0; if (fenced) next }
        { line = $0
          while (match(line, /`[^`]+`/)) { print NR, "code", substr(line, RSTART + 1, RLENGTH - 2); line = substr(line, RSTART + RLENGTH) }
          line = $0
          while (match(line, /\]\([^)]+\)/)) { print NR, "link", substr(line, RSTART + 2, RLENGTH - 3); line = substr(line, RSTART + RLENGTH) } }' "$1"
}

check_code() {          # FILE:LINE TEXT
    local at=$1 text=$2 w command="" words
    read -ra words <<<"$text"
    for w in "${words[@]}"; do
        if [[ $w =~ ^(src|cli|tests|tools|docs|include|examples|cmake)/[A-Za-z0-9_./*-]*[A-Za-z0-9_*/] ]]; then
            w=${BASH_REMATCH[0]}
            compgen -G "$w" >/dev/null || complain "$at" "there is no $w"
        elif [[ $w =~ ^[\"\(]?([A-Za-z0-9_]+\.(c|h|def|inc|sh|py))[,.:\;\)\"]*$ ]]; then
            [ -n "${is_name[${BASH_REMATCH[1]}]:-}" ] || [[ $w == *kernel.c* ]] || complain "$at" "no file is called ${BASH_REMATCH[1]}"
        fi
        if [[ $w =~ ^([a-z_][a-z0-9_]*)\(\)[,.]?$ ]]; then
            grep -qx "${BASH_REMATCH[1]}(" <<<"$functions" || complain "$at" "no function is called ${BASH_REMATCH[1]}"
        fi
    done
    for w in $(grep -oE '\bSN_[A-Z0-9_]+' <<<"$text"); do
        [ -n "${is_env[$w]:-}" ] || complain "$at" "there is no $w"
    done
    if [[ $text =~ \./dev\ ([a-z]+) ]]; then
        [ -n "${is_dev[${BASH_REMATCH[1]}]:-}" ] || complain "$at" "./dev has no command ${BASH_REMATCH[1]}"
    fi
    if [[ $text != *import\ sinter* && $text =~ (^|[ /])sinter\ ([a-z]+)(\ |$) ]]; then
        command=${BASH_REMATCH[2]}
        [ -n "${is_command[$command]:-}" ] || { complain "$at" "sinter has no command $command"; command=""; }
    fi
    for w in $(grep -oE -- '(^|[ `])--[a-z][a-z-]+' <<<"$text"); do
        if [ -n "$command" ]; then
            [[ ${is_flag[$w]:-} == *" $command "* ]] || [ "$w" = --help ] || complain "$at" "sinter $command has no flag $w"
        elif [ -z "${is_flag[$w]:-}" ] && [ "$w" != --help ] && [ "$w" != --version ]; then
            grep -qx -e "$w" <<<"$other_flags" || complain "$at" "there is no flag $w"
        fi
    done
}

for doc in "${docs[@]}"; do
    while read -r line what text; do
        if [ "$what" = code ]; then
            check_code "$doc:$line" "$text"
        elif [[ $text != *://* ]]; then
            target=${text%%#*}
            [ -z "$target" ] || [ -e "$(dirname "$doc")/$target" ] || complain "$doc:$line" "the link's target $target does not exist"
        fi
    done < <(places "$doc")
done

if [ $# = 0 ]; then
    for w in "${switches[@]}"; do grep -qw "$w" docs/debug.md || complain "docs/debug.md:1" "$w of options.def is not explained"; done
    for w in $(sed -n 's/^FUSE( *\([a-z_]*\),.*/\1/p' src/fuse/fusion.def); do
        grep -qw "$w" docs/fusion.md || complain "docs/fusion.md:1" "the rule $w of fusion.def is not explained"
    done
    while IFS= read -r w; do
        grep -qF "$w" docs/fusion.md || complain "docs/fusion.md:1" "the reason '$w' is not explained"
    done < <(cat src/fuse/legal.c src/fuse/plan.c | grep -oE '(return|why =|no =|\?) *"[^"]+"( : "[^"]+")?' | grep -oE '"[^"]{8,}"' | tr -d '"' | sort -u)
    for w in "${!is_command[@]}"; do grep -qE "sinter $w\b" "${docs[@]}" || complain "README.md:1" "no document says what sinter $w does"; done
fi
exit $bad
