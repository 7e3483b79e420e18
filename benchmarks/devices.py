"""What do two devices cost on one machine, and does a step wait for its pictures?

The same batches on 1 and on 2 logical CPU devices (MirroredStrategy), in processes that take turns;
and the feed alone, beside the step that it feeds. Ratios of images/s, the first step left out.

    python -m benchmarks.devices      about 3 minutes on 2 cores; needs cifar10
"""

import json
import subprocess
import sys
import time
from statistics import median

from pipelines.data import datasets
from pipelines.errors import UserError
from pipelines.recipes.catalog import get_recipe
from pipelines.recipes.recipe import Recipe
from pipelines.runtime import backend, provenance
from pipelines.tracking import tracked_run

STEPS, ROUNDS = 60, 3


def recipe(count: int = 1) -> Recipe:
    return get_recipe("allconv-cifar10").override(
        steps=STEPS, learning_rate=1e-6, train_examples=STEPS * 128, devices=count
    )


def main() -> None:
    """Print and record the ratios."""
    datasets.load("cifar10", 1)  # a sentence where it is not prepared
    print(provenance.tags()["cpu"], f"{provenance.tags()['cores']} cores; median (least-most)")
    with tracked_run.tracked(
        "devices", experiment="benchmarks", kind="benchmark", params=recipe().flat()
    ) as run:
        rounds = [{way: apart(way) for way in ("1", "2", "feed")} for _ in range(ROUNDS)]
        for name, way in (("two_devices_over_one", "2"), ("feed_over_step", "feed")):
            ratios = [each[way] / each["1"] for each in rounds]
            print(f"{name:>22}  {median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")
            run.log({name: median(ratios)})


def apart(way: str) -> float:
    """The rate of one way, from a process of its own."""
    words = [sys.executable, "-m", "benchmarks.devices", way]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def trained(count: int) -> float:
    """images/s of a training on that many devices."""
    backend.keras()
    from pipelines.training import devices
    from pipelines.training.job import build_job
    from pipelines.training.train import train

    setting = recipe(count)
    place = devices.place(setting)
    splits = datasets.load("cifar10", setting.train_examples)
    job = build_job(setting, splits, place)
    return train(job, lambda metrics, step: None, test=False).metrics["images_per_s"]


def fed() -> float:
    """images/s of the feed when nothing is done with them."""
    backend.keras()
    from pipelines.training import input_pipeline

    setting = recipe()
    batches = iter(input_pipeline.train(setting, datasets.load("cifar10").train, 0, 5 * STEPS))
    next(batches)
    start = time.perf_counter()
    count = sum(len(y) for _, y in batches)
    return count / (time.perf_counter() - start)


if __name__ == "__main__":
    try:
        if sys.argv[1:]:
            print(json.dumps(fed() if sys.argv[1] == "feed" else trained(int(sys.argv[1]))))
        else:
            main()
    except UserError as error:
        sys.exit(f"error: {error}")
