#!/usr/bin/env python3
"""The H2O demonstration's cache class in PyTorch, written anew from its description, timed as in bench_store.

One layer, 8 heads x 64, float32, batch 1, one thread: update() with eviction when the cache is full. Prints a
line "half median-microseconds" for each budget half+half.

    seed_torch.py [--install FOLDER]    without torch, make a virtual environment there and install it (large)
"""
import argparse
import os
import statistics
import subprocess
import sys
import time
import warnings

TORCH = "torch==2.13.0"
HEADS, HEAD_DIM = 8, 64
RUNS = {8: 2000, 256: 1000, 1024: 300, 4096: 100}


def run_again_with_torch(folder):
    """Replace this process by one of a virtual environment that has torch."""
    python = os.path.join(folder, "bin", "python3")
    if not os.path.exists(python):
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, stdout=sys.stderr)
    if subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        print(f"seed_torch: installing {TORCH} into {folder}", file=sys.stderr)
        subprocess.run([python, "-m", "pip", "install", "--quiet", TORCH], check=True, stdout=sys.stderr)
    os.execv(python, [python, os.path.abspath(__file__)])


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--install", metavar="FOLDER")
    return parser.parse_args()


arguments = parse_arguments()
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # which is not used here
try:
    import torch
except ImportError:
    if not arguments.install:
        sys.exit("seed_torch: torch is not installed; --install FOLDER installs it there")
    run_again_with_torch(arguments.install)


class Cache:
    """keys, values [batch, heads, size, head_dim]; scores, positions [size]: one choice for all heads."""

    def __init__(self, recent, heavy):
        self.recent, self.heavy = recent, heavy
        self.keys = torch.empty(1, HEADS, 0, HEAD_DIM)
        self.values = torch.empty(1, HEADS, 0, HEAD_DIM)
        self.scores = torch.empty(0)
        self.positions = torch.empty(0, dtype=torch.long)
        self.seen = 0

    def update(self, key, value, weights=None):
        """key, value [batch, heads, 1, head_dim]; weights [batch, heads, size] over the tokens before."""
        if weights is not None:
            self.scores = self.scores + weights.mean(dim=1)[0]
        self.keys = torch.cat([self.keys, key], dim=2)
        self.values = torch.cat([self.values, value], dim=2)
        self.scores = torch.cat([self.scores, torch.zeros(1)])
        self.positions = torch.cat([self.positions, torch.tensor([self.seen])])
        self.seen += 1
        if self.scores.numel() > self.recent + self.heavy:
            self.evict()

    def evict(self):
        older = self.scores.numel() - self.recent
        heavy = torch.topk(self.scores[:older], self.heavy).indices
        kept, _ = torch.sort(torch.cat([heavy, torch.arange(older, older + self.recent)]))
        self.keys = self.keys.index_select(2, kept)
        self.values = self.values.index_select(2, kept)
        self.scores = self.scores.index_select(0, kept)
        self.positions = self.positions.index_select(0, kept)


def full_cache(half):
    """A cache that holds its budget, as it would be after that many tokens."""
    cache = Cache(half, half)
    size = 2 * half
    cache.keys = torch.randn(1, HEADS, size, HEAD_DIM)
    cache.values = torch.randn(1, HEADS, size, HEAD_DIM)
    cache.scores = torch.rand(size)
    cache.positions = torch.arange(size)
    cache.seen = size
    return cache


def median_us(half, runs):
    cache = full_cache(half)
    key, value = torch.randn(1, HEADS, 1, HEAD_DIM), torch.randn(1, HEADS, 1, HEAD_DIM)
    weights = [torch.softmax(torch.rand(1, HEADS, 2 * half), dim=-1) for _ in range(4)]
    took = []
    for i in range(runs + runs // 10):
        start = time.perf_counter_ns()
        cache.update(key, value, weights[i % 4])
        took.append((time.perf_counter_ns() - start) / 1000)
    assert cache.scores.numel() == 2 * half
    return statistics.median(took[runs // 10:])


def check():
    """The worked example: scores 3.8 .4 2.1 .3 .0, recent 2, heavy 2 keep positions 0 2 3 4."""
    cache = Cache(2, 2)
    row = torch.zeros(1, HEADS, 1, HEAD_DIM)
    for size in range(4):
        cache.update(row, row, torch.zeros(1, HEADS, size) if size else None)
    cache.update(row, row, torch.tensor([3.8, 0.4, 2.1, 0.3]).expand(1, HEADS, 4))
    assert cache.positions.tolist() == [0, 2, 3, 4], cache.positions


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    with torch.no_grad():
        check()
        for half, runs in RUNS.items():
            print(half, f"{median_us(half, runs):.1f}", flush=True)


main()
