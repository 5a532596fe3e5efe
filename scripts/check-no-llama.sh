#!/bin/sh
# A build without llama.cpp still has demo and replay; run, chat, serve, trace, eval and bench say what is missing and exit 3.
#
#   scripts/check-no-llama.sh BUILD_DIR
set -eu
h2okv=$1/h2okv
vectors=$(cd "$(dirname "$0")/../tests/vectors" && pwd)

"$h2okv" demo >/dev/null
for file in "$vectors"/*.jsonl; do
    "$h2okv" replay "$file" --check >/dev/null
done

for command in "run -p hello -n 1" chat serve "trace -p hello -o x.html" "eval recall" bench; do
    status=0
    message=$("$h2okv" $command 2>&1) || status=$?
    if [ $status != 3 ] || ! echo "$message" | grep -q 'llama\.cpp'; then
        echo "h2okv $command without llama.cpp: exit $status (expected 3), it said: $message"
        exit 1
    fi
done
"$h2okv" bench --systems none --quick -q >/dev/null
