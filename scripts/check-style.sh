#!/bin/sh
# House rules that a command can see. Prints each breach as file:line; exit 1 if there is one.
#
#   scripts/check-style.sh [ROOT]
#
# C files start with a comment, have at most 500 lines, 120 columns (tables of tests may be wider), no tabs; functions
# have at most 100 lines from brace to brace; each C file is named in a CMakeLists.txt; no file names a machine's
# folders or a package registry's host.
set -eu
cd "${1:-$(dirname "$0")/..}"
files=$(if [ -d .git ]; then git ls-files; else find . -type f | sed 's|^\./||'; fi | grep -v '^build')
sources=$(echo "$files" | grep '\.[ch]$' || [ $? = 1 ])
status=0

[ -z "$sources" ] || awk '
function complain(line, text) { printf "%s:%d: %s\n", FILENAME, line, text; bad++ }

# Functions as K&R puts them: a body opens with { at the line start, or with ") {" at the end of a line that is
# not indented, and closes with } at the line start.
function end_of_function() {
    length_now = FNR - opened + 1
    if (length_now > 100) complain(opened, "function of " length_now " lines, at most 100")
    if (FILENAME !~ /^tests\//) sizes[++functions] = length_now
    opened = 0
}

FNR == 1 { opened = 0; if ($0 !~ /^\/[*\/]/) complain(1, "a C file starts with a comment that says what it is for") }
FNR == 501 { complain(501, "more than 500 lines") }
length($0) > 120 && FILENAME !~ /^tests\// { complain(FNR, "more than 120 columns") }
/\t/ { complain(FNR, "a tab") }
/^\{/ || /^[A-Za-z].*\) \{$/ { opened = FNR }
/^\}/ && opened { end_of_function() }

END {
    for (i = 2; i <= functions; i++) {
        for (j = i; j > 1 && sizes[j - 1] > sizes[j]; j--) { t = sizes[j]; sizes[j] = sizes[j - 1]; sizes[j - 1] = t }
    }
    printf "style: %d functions outside tests, median %d lines, longest %d\n", functions,
        sizes[int((functions + 1) / 2)], sizes[functions]
    exit bad > 0
}' $sources || status=1

# A file that no CMakeLists.txt above it names is never compiled.
for file in $(echo "$sources" | grep '\.c$'); do
    folder=${file%/*} rest=${file##*/}
    while ! grep -qsE "(^|[ (])${rest%.c}(\.c)?([ )]|\$)" "$folder/CMakeLists.txt"; do
        case $folder in
            */*) rest=${folder##*/}/$rest folder=${folder%/*} ;;
            *) echo "$file:1: not named in a CMakeLists.txt"; status=1; break ;;
        esac
    done
done

# Written so that the patterns do not match themselves.
folders='/(wor[k]|roo[t]|hom[e]|User[s])/[A-Za-z.]'
hosts='(registry\.npmj[s]|npmjs\.or[g]|pypi\.or[g]|pythonhoste[d]|https?://[a-z0-9.]*(np[m]|pyp[i]|debia[n]))'
if echo "$files" | tr '\n' '\0' | xargs -0 grep -nIE "$folders|$hosts" /dev/null; then
    echo "style: a machine's folder or a registry's host is named above"
    status=1
fi
exit $status
