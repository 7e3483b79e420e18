"""What does bfloat16 give on one core, by the width of the network?

HM's network with 13 and 31 convolutions, at several widths of its first stage, the others 2 and 4
times as wide. Images/s in float32, and the ratios to it in bfloat16: of our training, of bare Keras
`fit` and of PyTorch under autocast, where that is installed; then ours over each of the two. It
pays where the processor multiplies in bfloat16 (AMX, less so AVX-512 BF16); which it has, is said.

    python -m benchmarks.precision      about 15 minutes on one core; needs cifar10
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import side_by_side, train_step
from pipelines.data import datasets
from pipelines.recipes.catalog import get_recipe

NETWORKS = ((2, 32), (2, 64), (5, 8), (5, 16), (5, 32))  # blocks a stage, width of the first
STEPS, ROUNDS = 6, 3


def main() -> None:
    """Measure, print, and record in the tracking store of the project."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before TensorFlow counts cores
    splits = datasets.load("cifar10", 10_000)  # UserError where it is not prepared
    side_by_side.print_title(f"Images/s on one core; bfloat16 by {bfloat16_units() or 'no unit'}")
    for blocks, width in NETWORKS:
        numbers = compare(blocks, width, splits)
        side_by_side.report(f"{6 * blocks + 1} convolutions, {width}-{4 * width}", numbers)


def bfloat16_units() -> str:
    """Return the instructions of this processor that multiply in bfloat16, by Linux's names."""
    cpu = Path("/proc/cpuinfo")
    flags = set(cpu.read_text().split()) if cpu.exists() else set()
    return ", ".join(sorted({"amx_bf16", "avx512_bf16"} & flags))


def compare(blocks: int, width: int, splits: Any) -> side_by_side.Rounds:
    """Return the images/s and their ratios for one network."""
    jobs = {
        precision: side_by_side.build_job(
            get_recipe("allconv-cifar10").override(
                model_args={
                    "blocks_per_stage": blocks,
                    "widths": (width, 2 * width, 4 * width),
                    "stem_width": width,
                },
                precision=precision,
                steps=STEPS,
                learning_rate=1e-6,
                weight_decay=0,
                steps_per_execution=1,
            ),
            splits,
        )
        for precision in ("float32", "mixed_bfloat16")
    }
    ways = {}
    for precision, job in jobs.items():
        ways[f"ours {precision}"] = lambda job=job: side_by_side.images_per_s(job)
        ways[f"fit {precision}"] = lambda job=job: train_step.fit_arrays(job, xla=False)
        if importlib.util.find_spec("torch"):
            kind = precision.removeprefix("mixed_")
            ways[f"torch {precision}"] = lambda kind=kind: time_torch(blocks, width, kind)
    rates = side_by_side.take_turns(ways, ROUNDS)
    numbers = {f"{name} images_per_s": each for name, each in rates.items() if "float32" in name}
    for way in dict.fromkeys(name.partition(" ")[0] for name in ways):
        pair = rates[f"{way} mixed_bfloat16"], rates[f"{way} float32"]
        numbers[f"{way} bfloat16/float32"] = pair[0] / pair[1]
        if way != "ours":
            numbers[f"ours/{way} float32"] = rates["ours float32"] / pair[1]
            numbers[f"ours/{way} bfloat16"] = rates["ours mixed_bfloat16"] / pair[0]
    return numbers


def time_torch(blocks: int, width: int, precision: str) -> float:
    """Return PyTorch's images/s, of a process of its own on the same core."""
    words = [sys.executable, "-m", "benchmarks.bare_torch", str(blocks), str(width), precision]
    return float(subprocess.run(words, capture_output=True, check=True).stdout)


if __name__ == "__main__":
    main()
