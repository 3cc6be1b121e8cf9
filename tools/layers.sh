#!/bin/bash
# layers.sh: every #include "FOLDER/..." below src/ must be allowed by src/layers. Messages are file:line; exit 1 if any.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
declare -A allowed
while IFS=: read -r folder others; do
    [ -z "$folder" ] || allowed[$folder]=" $folder $others "
done <src/layers
bad=0
complain() { printf '%s: %s\n' "$1" "$2"; bad=1; }

while IFS= read -r file; do
    folder=${file#src/}
    folder=${folder%%/*}
    [ -n "${allowed[$folder]:-}" ] || { complain "$file:1" "folder '$folder' is not in src/layers"; continue; }
    while IFS=: read -r line text; do
        name=$(sed -n 's/^[ \t]*#[ \t]*include[ \t]*"\([^"]*\)".*/\1/p' <<<"$text")
        case $name in
        '') ;;
        sinter.h) [ "$folder" = api ] || complain "$file:$line" "only src/api may include the public header" ;;
        */*) [[ ${allowed[$folder]} == *" ${name%%/*} "* ]] ||
                complain "$file:$line" "'$folder' may not include \"$name\": src/layers allows it only:${allowed[$folder]}" ;;
        *) complain "$file:$line" "\"$name\" needs its folder: \"$folder/$name\"" ;;
        esac
    done < <(grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$file")
done < <(find src -name '*.[ch]' -o -name '*.def' | LC_ALL=C sort)
exit $bad
