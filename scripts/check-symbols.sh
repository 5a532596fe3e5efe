#!/bin/sh
# What libh2okv may define and use: it exports h2okv_ names only, has no writable global, and needs nothing
# beyond libc and libm (no I/O, no environment, no clock).
#
#   scripts/check-symbols.sh SHARED_LIBRARY STATIC_LIBRARY
set -eu
status=0

report() { # TITLE NAMES
    [ -z "$2" ] && return
    echo "$1:"
    echo "$2"
    status=1
}

report "exported, but no public h2okv_ name" \
    "$(nm -D --defined-only "$1" | awk '$3 !~ /^h2okv_[a-z0-9]/ || $3 ~ /^h2okv__/ { print "  " $3 }')"
report "defined in the static library without the prefix h2okv" \
    "$(nm --extern-only --defined-only "$2" | awk 'NF == 3 && $3 !~ /^h2okv_/ { print "  " $3 }')"
report "writable globals" \
    "$(objdump -t "$2" | grep -E ' O (\.t?(data|bss)|\*COM\*)' | grep -v ' \.data\.rel\.ro' | awk '{ print "  " $NF }')"
report "used, but the library does no I/O, reads no environment and no clock" \
    "$(nm --undefined-only "$2" | awk '{ print $2 }' | sort -u |
       grep -E '^(f?open|f?read|f?write|f?printf|vf?printf|puts|fputs|fputc|putchar|perror|(secure_)?getenv|exit|abort|time|clock|clock_gettime|rand|random|stdout|stderr|stdin)$' | sed 's/^/  /')"
exit $status
