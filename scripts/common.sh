# For the scripts that use the cache folder; they set `here` first. Sets pins, cache, llama and what pins.sh sets.
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
pins=${H2OKV_PINS:-$here/pins}
cache=${H2OKV_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/h2okv}
case $cache in
    /*) ;;
    *) cache=$PWD/$cache ;;
esac
. "$pins/pins.sh"
llama=llama.cpp-$llama_version

say() { printf 'h2okv: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# Enters the part that changes the cache folder: one call at a time, with a temporary folder in it that goes away
# in the end. What a killed call left goes away too, for the lock is ours.
lock() {
    mkdir -p "$cache"
    exec 9>"$cache/.lock"
    flock -n 9 || { say "waiting for another fetch into $cache"; flock 9; }
    rm -rf "$cache"/tmp.*
    tmp=$(mktemp -d "$cache/tmp.XXXXXX")
    trap 'rm -rf "$tmp"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}
