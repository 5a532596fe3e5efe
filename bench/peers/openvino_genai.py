#!/usr/bin/env python3
"""OpenVINO GenAI on the GGUF file and text of `h2okv bench`: its full cache, and its own cache eviction.

A context of c tokens is a prompt of c - NEW tokens, then NEW tokens decoded. Prints one JSON object: for each system
and context the time to the first token, the decode speed (one over the median time of a token) and the peak memory.

    openvino_genai.py [--install FOLDER] [--model GGUF] [--text FILE] [--contexts 4096,8192] [--threads 2]
                      [--budget 800] [--new 64] [--repeat 1]

Without the package it says so; --install makes a virtual environment in FOLDER and installs it there. Each
measurement runs in a process of its own, all systems take turns, as in h2okv bench. Eviction: `start` first tokens
and `recent` newest ones are kept always, the rest of the budget goes to the tokens with the most summed attention
(AggregationMode.SUM), which is the same idea as H2O's. Sizes are whole blocks of 32 tokens.
"""
import argparse
import importlib.util
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time

PACKAGE = "openvino-genai==2026.4.1.0"
BLOCK = 32
LICENCES = "/usr/share/common-licenses"
NAMES = ["GPL-3", "LGPL-3", "GPL-2", "LGPL-2.1", "MPL-2.0", "Apache-2.0", "GFDL-1.3"]  # as h2okv bench reads them
SYSTEMS = ["openvino-full", "openvino-evict"]


def default_model():
    xdg = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    cache = os.environ.get("H2OKV_CACHE") or os.path.join(xdg, "h2okv")
    return os.path.join(cache, "models", "SmolLM2-135M-Instruct.Q4_1.gguf")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--install", metavar="FOLDER")
    parser.add_argument("--model", metavar="GGUF", default=default_model())
    parser.add_argument("--text", metavar="FILE")
    parser.add_argument("--contexts", type=lambda list_: [int(c) for c in list_.split(",")], default=[4096, 8192])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--budget", type=int, default=800)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--one", nargs=2, metavar=("SYSTEM", "CONTEXT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.budget % BLOCK or arguments.budget < 4 * BLOCK:
        parser.error(f"--budget {arguments.budget} is no multiple of {BLOCK} from {4 * BLOCK} up")
    if arguments.new < 2 or min(arguments.contexts) <= arguments.new:
        parser.error("--new must be from 2 up and below every context")
    if not os.path.exists(arguments.model):
        parser.error(f"no model: {arguments.model} is missing; run `make model`, or name one with --model")
    return arguments


def run_again_with_package(folder):
    """Replace this process by one of a virtual environment that has the package."""
    python = os.path.join(folder, "bin", "python3")
    if not os.path.exists(python):
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, stdout=sys.stderr)
    has = subprocess.run([python, "-c", "import openvino_genai"], stderr=subprocess.DEVNULL, cwd="/", check=False)
    if has.returncode != 0:
        print(f"openvino_genai.py: installing {PACKAGE} into {folder}", file=sys.stderr)
        subprocess.run([python, "-m", "pip", "install", "--quiet", PACKAGE], check=True, stdout=sys.stderr)
    os.execv(python, [python, os.path.abspath(__file__)] + sys.argv[1:])


def read_text(path):
    names = [path] if path else [os.path.join(LICENCES, name) for name in NAMES]
    parts = []
    for name in names:
        if path or os.path.exists(name):
            with open(name, encoding="utf-8") as file:
                parts.append(file.read())
    if not "".join(parts):
        sys.exit("openvino_genai.py: no text; give one with --text FILE")
    return "".join(parts)


def make_pipeline(genai, system, arguments):
    """Both with the scheduler that eviction needs, so that only eviction differs."""
    scheduler = genai.SchedulerConfig()
    if system == "openvino-evict":
        start, recent = BLOCK, arguments.budget // 2 // BLOCK * BLOCK
        scheduler.use_cache_eviction = True
        scheduler.cache_eviction_config = genai.CacheEvictionConfig(
            start, recent, arguments.budget, genai.AggregationMode.SUM)
    return genai.LLMPipeline(arguments.model, "CPU", scheduler_config=scheduler,
                             INFERENCE_NUM_THREADS=arguments.threads)


def make_prompt(genai, pipeline, text, n):
    """The text's first n tokens, repeated when there are fewer."""
    import numpy
    import openvino
    ids = pipeline.get_tokenizer().encode(text).input_ids.data[0]
    ids = numpy.resize(ids, n).reshape(1, n)
    return genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(numpy.ones_like(ids)))


def clock(genai, times):
    """A streamer that notes when each token comes."""
    class Clock(genai.StreamerBase):
        def write(self, tokens):
            times.extend([time.perf_counter()] * (len(tokens) if isinstance(tokens, list) else 1))
            return genai.StreamingStatus.RUNNING

        def end(self):
            pass

    return Clock()


def generate(genai, pipeline, prompt, n_new):
    """Seconds from the start to each token."""
    config = genai.GenerationConfig()
    config.max_new_tokens, config.ignore_eos, config.do_sample = n_new, True, False
    config.apply_chat_template = False
    times = []
    start = time.perf_counter()
    pipeline.generate(prompt, config, clock(genai, times))
    return [t - start for t in times]


def measure(system, context, arguments):
    """One sample, in a process of its own."""
    import openvino_genai as genai
    pipeline = make_pipeline(genai, system, arguments)
    n = context - arguments.new
    prompt = make_prompt(genai, pipeline, read_text(arguments.text)[:context * 8], n)
    generate(genai, pipeline, make_prompt(genai, pipeline, "a short text to warm up with", BLOCK), 2)
    times = generate(genai, pipeline, prompt, arguments.new + 1)  # the first one comes with the prompt
    steps = [b - a for a, b in zip(times, times[1:])]
    print(json.dumps({
        "prompt_tokens": n, "new_tokens": len(steps), "first_token_s": times[0],
        "decode_tok_s": 1 / statistics.median(steps),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "version": genai.__version__}))


def sample(system, context):
    command = [sys.executable, os.path.abspath(__file__)] + sys.argv[1:] + ["--one", system, str(context)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"openvino_genai.py: {system} at {context} failed ({done.returncode})")
    return json.loads(done.stdout.decode().splitlines()[-1])


def spread(values):
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def main():
    arguments = parse_arguments()
    own = os.path.dirname(os.path.abspath(__file__))  # this file has the package's name
    sys.path = [p for p in sys.path if os.path.abspath(p or ".") != own]
    if not importlib.util.find_spec("openvino_genai"):
        if not arguments.install:
            sys.exit("openvino_genai.py: openvino-genai is not installed; --install FOLDER installs it there")
        run_again_with_package(arguments.install)
    if arguments.one:
        measure(arguments.one[0], int(arguments.one[1]), arguments)
        return
    load = os.getloadavg()
    points = [(system, context) for context in arguments.contexts for system in SYSTEMS]
    samples = {point: [] for point in points}
    for turn in range(arguments.repeat):
        for system, context in points:
            print(f"openvino_genai.py: round {turn + 1}, {system} at {context}", file=sys.stderr)
            samples[system, context].append(sample(system, context))
    print(json.dumps({
        "engine": "OpenVINO GenAI " + next(iter(samples.values()))[0]["version"],
        "machine": {"cpu": platform.processor() or platform.machine(), "load_before": load},
        "threads": arguments.threads, "budget": arguments.budget,
        "measurements": [
            {"system": system, "context": context, "rounds": len(list_), "prompt_tokens": list_[0]["prompt_tokens"]}
            | {key: spread([s[key] for s in list_]) for key in ("first_token_s", "decode_tok_s", "peak_rss_bytes")}
            for (system, context), list_ in samples.items()]}, indent=2))


main()
