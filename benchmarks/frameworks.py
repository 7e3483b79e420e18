"""The network of HM Table 1 in full, batch 128, on a CPU: our training beside other frameworks.

Every way is a process of its own, and the ways take turns, so that a busy machine slows them alike.
A step takes seconds, so few are timed; the first, which traces or compiles, is left out. Beside
images/s stands the share of the machine's float32 matrix-product rate, measured in each round.

    python -m benchmarks.frameworks      about 10 minutes on 2 cores; needs cifar10
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from pipelines.data import datasets
from pipelines.errors import UserError
from pipelines.recipes.catalog import get_recipe
from pipelines.recipes.recipe import Recipe
from pipelines.runtime import backend, provenance
from pipelines.tracking import tracked_run

STEPS, ROUNDS = 4, 2
GFLOP = 3 * 3.95  # an image, forward and backward
SIZE = 4096  # of the matrices whose product is timed


def recipe() -> Recipe:
    return get_recipe("allconv-cifar10", "paper").override(
        steps=STEPS, learning_rate=1e-6, train_examples=STEPS * 128, per_call=1
    )


def main() -> None:
    """Print and record each way's images/s, over ours, and its share of the peak."""
    datasets.load("cifar10", 1)  # a sentence where it is not prepared
    with tracked_run.tracked(
        "frameworks", experiment="benchmarks", kind="benchmark", params=recipe().flat()
    ) as run:
        rounds = [{way: rate for way in WAYS if (rate := apart(way))} for _ in range(ROUNDS)]
        print(provenance.tags()["cpu"], f"{provenance.tags()['cores']} cores")
        for way in rounds[0]:
            ratios = [each[way] / each["ours"] for each in rounds]
            shares = [each[way] * GFLOP / each["matrix_product"] for each in rounds]
            if way == "matrix_product":
                print(f"{way:>20}  {median(each[way] for each in rounds):.0f} GFLOP/s")
                continue
            print(
                f"{way:>20}  {median(each[way] for each in rounds):6.2f} images/s  over ours "
                f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})  "
                f"share of peak {median(shares):.2f}"
            )
            run.log({f"{way}_over_ours": median(ratios), f"{way}_of_peak": median(shares)})


def apart(way: str) -> float:
    """The rate of one way, from a process of its own; 0 where its framework is not installed."""
    backend = {"keras_jax": "jax"}.get(way, "tensorflow")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.frameworks", way],
        env=os.environ | {"KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        check=False,
    )
    if "ModuleNotFoundError" in done.stderr:
        print(f"{way}: skipped. {done.stderr.strip().splitlines()[-1]}")
        return 0.0
    if done.returncode:
        raise SystemExit(f"{way} ended with code {done.returncode}. {done.stderr}")
    return float(json.loads(done.stdout.splitlines()[-1]))


def ours() -> float:
    """images/s of `train` with its feed, weight decay and callbacks."""
    import dataclasses

    backend.keras()
    from pipelines.training import devices
    from pipelines.training.job import build_job
    from pipelines.training.train import train

    setting, splits = recipe(), datasets.load("cifar10", recipe().train_examples)
    few = dataclasses.replace(splits.val, x=splits.val.images[:128], y=splits.val.labels[:128])  # type: ignore[union-attr]
    splits = dataclasses.replace(splits, val=few)
    job = build_job(setting, splits, devices.place(setting))
    clock = Clock()
    train(job, lambda metrics, step: clock.tick() if "batch_loss" in metrics else None, test=False)
    return clock.images_per_s(setting.batch_size)


def keras_fit() -> float:
    """images/s of Keras's own `fit` at its defaults, without decay, augmentation and error."""
    import keras

    import keras_models

    setting, splits = recipe(), datasets.load("cifar10", recipe().train_examples)
    model = keras_models.build(setting.model, (32, 32, 3), 10, **setting.model_args)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(1e-6, 0.9), loss)
    clock = Clock()
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=clock.tick)
    x, y = splits.train.take(slice(None))  # type: ignore[union-attr]
    model.fit(x, y, setting.batch_size, callbacks=[callback], verbose=0)
    return clock.images_per_s(setting.batch_size)


def torch() -> float:
    """images/s of the same network in plain PyTorch, channels last, augmented; without decay."""
    import torch as library
    from torch.nn.functional import cross_entropy

    from benchmarks.torch_network import AllConv

    splits = datasets.load("cifar10", recipe().train_examples)
    model = AllConv().to(memory_format=library.channels_last)
    optimizer = library.optim.SGD(model.parameters(), 1e-6, 0.9)
    clock = Clock()
    for step in range(STEPS):
        x, y = splits.train.train_batch(step, 128, 0, shift=4)  # type: ignore[union-attr]
        images = library.from_numpy(x).permute(0, 3, 1, 2)  # channels last in memory already
        optimizer.zero_grad()
        cross_entropy(model(images), library.from_numpy(y).long()).backward()
        optimizer.step()
        clock.tick()
    return clock.images_per_s(128)


def matrix_product() -> float:
    """GFLOP/s of float32 matrix products in TensorFlow."""
    tf = backend.tensorflow()
    a = tf.random.normal((SIZE, SIZE))
    seconds = []
    for _ in range(8):
        start = time.perf_counter()
        tf.linalg.matmul(a, a).numpy()
        seconds.append(time.perf_counter() - start)
    return 2e-9 * SIZE**3 / min(seconds)


class Clock:
    """Times of the ends of steps."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def tick(self, *_: Any, **__: Any) -> None:
        self.ends.append(time.perf_counter())

    def images_per_s(self, batch_size: int) -> float:
        return batch_size * (len(self.ends) - 1) / (self.ends[-1] - self.ends[0])


WAYS: dict[str, Callable[[], float]] = {
    "matrix_product": matrix_product,
    "ours": ours,
    "keras_tensorflow": keras_fit,
    "torch": torch,
    "keras_jax": keras_fit,
}

if __name__ == "__main__":
    try:
        if sys.argv[1:]:
            print(json.dumps(WAYS[sys.argv[1]]()))
        else:
            main()
    except UserError as error:
        sys.exit(f"error: {error}")
