#!/bin/sh
# A build without llama.cpp still has demo and replay, and run says what is missing and exits 3.
#
#   scripts/check-no-llama.sh BUILD_DIR
set -eu
h2okv=$1/h2okv
vectors=$(cd "$(dirname "$0")/../tests/vectors" && pwd)

"$h2okv" demo >/dev/null
for file in "$vectors"/*.jsonl; do
    "$h2okv" replay "$file" --check >/dev/null
done

status=0
message=$("$h2okv" run -p hello -n 1 2>&1) || status=$?
if [ $status != 3 ] || ! echo "$message" | grep -q 'llama\.cpp'; then
    echo "h2okv run without llama.cpp: exit $status (expected 3), it said: $message"
    exit 1
fi
