#!/usr/bin/env python3
"""Write the figures of a finished run into docs/bench.md, between its two marks.

    build/h2okv bench --json >build/bench.json
    bench/peers/openvino_genai.py --install build/openvino >build/openvino.json      (may be left out)
    bench/fill_docs.py build/bench.json [build/openvino.json]
"""
import json
import os
import sys

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs", "bench.md")
BEGIN, END = "<!-- figures: bench/fill_docs.py -->", "<!-- end of figures -->"
LABELS = {
    "llama-fa": "llama.cpp, flash attention", "llama": "llama.cpp, without", "observe": "h2okv observe",
    "fused": "h2okv fused", "fused-q8": "h2okv fused, q8_0", "fused-all": "h2okv fused, nothing evicted",
    "openvino-full": "OpenVINO GenAI, full cache", "openvino-evict": "OpenVINO GenAI, its eviction",
}
AIMS = {
    "decode": ">= 6", "decode_any_context": ">= 1.3", "decode_all_kept": ">= 1.8", "first_token": ">= 3.8",
    "prompt_any_context": ">= 0.9", "prompt_linear": ">= 0.95", "peak_rss": "<= 0.55", "kernel_share": ">= 0.7",
    "openvino_decode": ">= 3.4", "openvino_first_token": ">= 1",
}


def number(value):
    return f"{value:.2f}" if value < 9.95 else f"{value:.1f}" if value < 99.5 else f"{value:,.0f}"


def cell(spread):
    """613 (600..620); the range only where there is one."""
    if spread["least"] == spread["most"]:
        return number(spread["median"])
    return f"{number(spread['median'])} ({number(spread['least'])}..{number(spread['most'])})"


def mebibytes(spread):
    return f"{spread['median'] / 2**20:.0f}"


def prompt_speed(m):
    """OpenVINO's script notes the first token only."""
    if "prompt_tok_s" in m:
        return cell(m["prompt_tok_s"])
    return number(m["prompt_tokens"] / m["first_token_s"]["median"])


def machine_lines(bench, peer):
    m = bench["machine"]
    lines = [f"{m['cpu']}, {bench['threads']} thread{'' if bench['threads'] == 1 else 's'} on {m['processors']} processors; load average before "
             f"{m['load_before'][0]:.2f}. h2okv {bench['version']}, {m['engine']}"
             + (f"; {peer['engine']} afterwards, load average before {peer['machine']['load_before'][0]:.2f}"
                if peer else "") + ".",
             f"Budget {bench['budget']}; {bench['new_tokens']} tokens decoded at a context's end; medians "
             "(least..most) of the rounds in the last column."]
    if bench["stopped"]:
        lines.append("The run was interrupted.")
    return lines


def measurement_lines(list_):
    lines = ["| context | system | prompt tok/s | first token s | decode tok/s | KV MiB | peak MiB | n |",
             "|---|---|---|---|---|---|---|---|"]
    for m in sorted(list_, key=lambda m: m["context"]):
        kv = f"{m['kv_bytes'] / 2**20:.1f}" if "kv_bytes" in m else ""
        lines.append(f"| {m['context']:,} | {LABELS[m['system']]} | {prompt_speed(m)} | "
                     f"{cell(m['first_token_s'])} | {cell(m['decode_tok_s'])} | {kv} | "
                     f"{mebibytes(m['peak_rss_bytes'])} | {m['rounds']} |")
    return lines


def kernel_lines(kernels):
    if not kernels:
        return []
    lines = ["", f"Decode kernel alone, {kernels['isa']}; copy bandwidth {cell(kernels['copy_gb_s'])} GB/s, bytes "
             "read + written:", "", "| cells | us a layer | GB/s | share |", "|---|---|---|---|"]
    for row in kernels["decode"]:
        lines.append(f"| {row['cells']:,} | {cell(row['us'])} | {number(row['gb_s'])} | {row['share']:.2f} |")
    return lines


def find(bench, system, context):
    return next((m for m in bench["measurements"] if m["system"] == system and m["context"] == context), None)


def peer_ratios(bench, peer):
    context = 8192
    own, other = find(bench, "fused", context), peer and find(peer, "openvino-evict", context)
    if not own or not other:
        return []
    return [{"key": "openvino_decode", "text": "decode at 8k, fused / OpenVINO GenAI with its eviction",
             "value": own["decode_tok_s"]["median"] / other["decode_tok_s"]["median"]},
            {"key": "openvino_first_token",
             "text": "time to first token at 8k, OpenVINO GenAI with its eviction / fused",
             "value": other["first_token_s"]["median"] / own["first_token_s"]["median"]}]


def ratio_lines(ratios):
    lines = ["", "| ratio | aim | measured |", "|---|---|---|"]
    return lines + [f"| {r['text']} | {AIMS.get(r['key'], '')} | {r['value']:.2f} |" for r in ratios]


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        bench = json.load(file)
    peer = None
    if len(sys.argv) == 3:
        with open(sys.argv[2], encoding="utf-8") as file:
            peer = json.load(file)
    with open(DOCS, encoding="utf-8") as file:
        before, rest = file.read().split(BEGIN)
    after = rest.split(END)[1]
    lines = machine_lines(bench, peer) + [""]
    if os.path.exists(os.path.join(os.path.dirname(DOCS), "bench.svg")):
        lines += ["![Decode speed against context, one line a system](bench.svg)", ""]
    lines += measurement_lines(bench["measurements"] + (peer["measurements"] if peer else []))
    lines += kernel_lines(bench["kernels"]) + ratio_lines(bench["ratios"] + peer_ratios(bench, peer))
    with open(DOCS, "w", encoding="utf-8") as file:
        file.write(before + BEGIN + "\n" + "\n".join(lines) + "\n" + END + after)


main()
