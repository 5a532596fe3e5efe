#!/usr/bin/env python3
"""Print the results of `make eval` as tables in Markdown: perplexity over the full cache's, and keys found.

    scripts/eval_tables.py build/eval/*.json
"""
import json
import math
import os
import sys


def load(paths):
    """{measure: {tokens: {text: rows}}}; the full cache's rows of one text are the same in each file."""
    found = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
        for row in result["rows"]:
            text = os.path.splitext(os.path.basename(row["options"]["text"]))[0]
            key = (row["policy"], row["guide"] != "off", row["options"]["budget_percent"])
            several = (row["options"].get("questions") or 1) > 1
            of_length = found.setdefault("session" if several else row["measure"], {}).setdefault(row["options"]["tokens"], {})
            of_length.setdefault(text, {})[key] = row
    return found


def columns(texts):
    """The rows' keys but the full cache's, in the order in which they were measured."""
    return list(dict.fromkeys(key for rows in texts.values() for key in rows if key[0] != "full"))


def title(key):
    policy, guided, percent = key
    return f"{policy}{', guided' if guided else ''} {percent:g} %"


def table(tokens, texts, full_title, full_cell, cell, total_full, total):
    """One line a text, and one of all texts."""
    keys = columns(texts)
    print(f"| {tokens:,} tokens | {full_title} | {' | '.join(title(key) for key in keys)} |")
    print("|---" * (len(keys) + 2) + "|")
    lines = [(name, full_cell(full(rows)), [cell(rows[key]) if key in rows else "" for key in keys])
             for name, rows in texts.items()]
    if len(texts) > 1:
        lines.append(("all", total_full([full(rows) for rows in texts.values()]),
                      [total([rows[key] for rows in texts.values() if key in rows]) for key in keys]))
    for name, of_full, cells in lines:
        print(f"| {name} | {of_full} | {' | '.join(cells)} |")
    print()


def full(rows):
    return next(row for key, row in rows.items() if key[0] == "full")


def mean_ratio(rows):
    return f"{math.exp(sum(math.log(row['ppl_ratio']) for row in rows) / len(rows)):.3f}"


def keys_found(rows):
    asked = sum(row["n"] for row in rows)
    return f"{round(sum(row['recall'] * row['n'] for row in rows))} of {asked}"


def later_keys_found(rows):
    """Of the questions after a document's first one."""
    later = [row["n"] - math.ceil(row["n"] / row["options"]["questions"]) for row in rows]
    return f"{round(sum(row['recall_later'] * n for row, n in zip(rows, later)))} of {sum(later)}"


def print_found(lengths, count):
    for tokens, texts in sorted(lengths.items()):
        table(tokens, texts, "full cache", lambda row: count([row]), lambda row: count([row]), count, count)


def provenance(paths):
    with open(paths[0], encoding="utf-8") as file:
        row = json.load(file)["rows"][-1]
    options, model = row["options"], os.path.basename(row["model"])
    return (f"h2okv {row['version']}, {model} (SHA-256 {(row['model_sha256'] or 'unknown')[:12]}), "
            f"{options['attention']}, {options['isa']}")


def main():
    paths = sys.argv[1:]
    if not paths:
        sys.exit(__doc__)
    found = load(paths)
    print(provenance(paths) + "\n")
    if "ppl" in found:
        print("Perplexity over the full cache's; the last line is the geometric mean.\n")
    for tokens, texts in sorted(found.get("ppl", {}).items()):
        table(tokens, texts, "full cache, perplexity", lambda row: f"{row['ppl']:.2f}",
              lambda row: f"{row['ppl_ratio']:.3f}", lambda rows: "", mean_ratio)
    if "recall" in found:
        print("Keys found.\n")
        print_found(found["recall"], keys_found)
    if "session" in found:
        print("Of several keys in one document, those found that were asked for after the first.\n")
        print_found(found["session"], later_keys_found)


main()
