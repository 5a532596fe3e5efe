#!/bin/sh
# scripts/eval.mk and eval_tables.py, against a stub of h2okv: what is measured, what the tables say, and what an
# interrupted run leaves. No model, no texts.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
box=$(mktemp -d)
trap 'rm -rf "$box"' EXIT
unset MAKEFLAGS MAKELEVEL MFLAGS TEXT EVAL KEYS PPL_TOKENS RECALL_TOKENS SESSION_TOKENS OUT
export BOX="$box"
failures=0

# Logs its arguments; ppl_ratio is 1 + budget % / 1000, doubled for the second text; half of the keys are found,
# all by a guided row and the full cache; of later questions a quarter. $BOX/broken: prints half of an object and fails.
cat >"$box/h2okv" <<'END'
#!/usr/bin/env python3
import argparse, json, os, sys
box = os.environ["BOX"]
open(f"{box}/calls", "a").write(" ".join(sys.argv[1:]) + "\n")
if os.path.exists(f"{box}/broken"):
    print("{")
    sys.exit(7)
p = argparse.ArgumentParser()
for name in ["eval", "measure"]:
    p.add_argument(name)
for name in ["-f", "-t", "--tokens", "--policy", "--budget", "--svg", "--guide", "--keys", "--questions"]:
    p.add_argument(name)
p.add_argument("-q", action="store_true")
p.add_argument("--json", action="store_true")
o = p.parse_args()
open(o.svg, "w").close()
def row(policy, percent):
    guide = o.guide or "off"
    ratio = (1 + percent / 1000) * (2 if "1861" in o.f and percent else 1)
    return {"measure": o.measure, "policy": policy, "guide": guide if percent else "off", "ppl": 20.0 * ratio,
            "ppl_ratio": ratio, "n": int(o.keys or 1024), "version": "9.9", "model": "m/tiny.gguf", "model_sha256": None,
            "recall": 1.0 if guide != "off" or not percent else 0.5, "recall_later": 0.25 if percent else 1.0,
            "options": {"text": o.f, "tokens": int(o.tokens), "questions": int(o.questions or 1), "budget_percent": percent or None, "attention": "fused",
                        "isa": "scalar"}}
rows = [row("full", 0)]
rows += [row(q, float(b.strip("%"))) for q in o.policy.split(",") for b in o.budget.split(",")]
print(json.dumps({"stopped": False, "rows": rows}))
END
chmod +x "$box/h2okv"

fail() {
    echo "FAILED: $title: $*"
    sed 's/^/    /' "$box/out"
    failures=$((failures + 1))
}

measure() { # EXIT VARIABLES...
    expected=$1
    shift
    : >"$box/calls"
    make -f "$root/scripts/eval.mk" H2OKV="$box/h2okv" OUT="$box/eval" TEXTS=texts "$@" >"$box/out" 2>"$box/errors"
    status=$?
    cp "$box/out" "$box/printed"
    cat "$box/errors" >>"$box/out"
    [ $status = "$expected" ] || fail "exit $status, expected $expected"
}

calls() { # N [PATTERN]
    n=$(grep -c -e "${2:-}" "$box/calls")
    [ "$n" = "$1" ] || fail "$n calls with '${2:-}', expected $1"
}

says() { grep -qxF -e "$1" "$box/out" || fail "should say '$1'"; }

title="all of it: four texts, two and three lengths, and sessions of one"
measure 0 -j2
calls 36
calls 8 '^eval ppl .* --policy default,h2o-paper,streaming --budget 20%,10% -t 1 '
calls 12 '^eval recall .* --keys 10 --policy default --guide auto --budget 20%,10%,5% -t 1 '
calls 12 '^eval recall .* --keys 10 --policy h2o-paper --guide off --budget 20% -t 1 '
calls 4 '^eval recall .* --keys 10 --questions 5 --policy default --guide auto --budget 20%,10%,5% -t 1 '
for name in moby-dick address-1861 address-1905 address-1928; do calls 9 "-f texts/$name.txt "; done
for tokens in 2048 4096; do calls 4 "^eval ppl .* --tokens $tokens "; done
for tokens in 1000 4000; do calls 8 "^eval recall .* --tokens $tokens "; done
calls 12 "^eval recall .* --tokens 2000 "
ls "$box/eval" | grep -c '\.svg$' | grep -qx 36 || fail "a chart of each is missing"
says 'h2okv 9.9, tiny.gguf (SHA-256 unknown), fused, scalar'
says '| 2,048 tokens | full cache, perplexity | default 20 % | default 10 % | h2o-paper 20 % | h2o-paper 10 % | streaming 20 % | streaming 10 % |'
says '| moby-dick | 20.00 | 1.020 | 1.010 | 1.020 | 1.010 | 1.020 | 1.010 |'
says '| address-1861 | 20.00 | 2.040 | 2.020 | 2.040 | 2.020 | 2.040 | 2.020 |'
says '| all |  | 1.213 | 1.201 | 1.213 | 1.201 | 1.213 | 1.201 |' # times the fourth root of 2
says '| 4,000 tokens | full cache | default, guided 20 % | default, guided 10 % | default, guided 5 % | h2o-paper 20 % |'
says '| address-1928 | 10 of 10 | 10 of 10 | 10 of 10 | 10 of 10 | 5 of 10 |'
says '| all | 40 of 40 | 40 of 40 | 40 of 40 | 40 of 40 | 20 of 40 |'
says '| 2,000 tokens | full cache | default, guided 20 % | default, guided 10 % | default, guided 5 % |'
says '| address-1861 | 8 of 8 | 2 of 8 | 2 of 8 | 2 of 8 |' # ten keys in two documents
says '| all | 32 of 32 | 8 of 32 | 8 of 32 | 8 of 32 |'
cmp -s "$box/eval/tables.md" "$box/printed" || fail "tables.md differs from what was printed"

title="what is measured already is not measured again"
rm "$box/eval/ppl-4096-moby-dick.json"
measure 0
calls 1
calls 1 '^eval ppl -f texts/moby-dick.txt --tokens 4096 '
title="but anew by a newer program"
touch -d '+1 minute' "$box/h2okv"
measure 0 EVAL=ppl
calls 8
touch -d '-1 minute' "$box/h2okv"

title="one part, other sizes"
measure 0 EVAL=recall RECALL_TOKENS=1500 KEYS=8
calls 8
calls 8 '^eval recall .* --tokens 1500 --keys 8 '
! grep -q erplexity "$box/out" || fail "should not speak of perplexity"

title="a text of one's own, measured each time"
measure 0 EVAL=ppl PPL_TOKENS=256 TEXT="$box/my text.txt"
measure 0 EVAL=ppl PPL_TOKENS=256 TEXT="$box/my text.txt"
calls 1 "-f $box/my text.txt --tokens 256 "
says '| my text | 20.00 | 1.020 | 1.010 | 1.020 | 1.010 | 1.020 | 1.010 |'

title="a failure is a failure, and leaves no result"
touch "$box/broken"
measure 2 EVAL=ppl PPL_TOKENS=300
[ -z "$(ls "$box/eval" | grep '^ppl-300.*json')" ] || fail "left $(ls "$box/eval" | grep '^ppl-300')"
title="an unknown part is named"
measure 2 EVAL=pll
grep -q 'EVAL=pll: use ppl, recall, session' "$box/out" || fail "should name it"

[ $failures = 0 ] && echo "eval: all as expected"
[ $failures = 0 ]
