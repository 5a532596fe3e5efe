#!/bin/sh
# Prints the text of `make run`: licences that every Debian system has, together 9,245 tokens of the default model.
set -eu
cd /usr/share/common-licenses 2>/dev/null || {
    echo "h2okv: no /usr/share/common-licenses here: give a text with make run TEXT=file" >&2
    exit 4
}
cat GPL-3 LGPL-3
