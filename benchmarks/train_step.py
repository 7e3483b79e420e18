"""What does our training cost over bare Keras `fit`, and does XLA pay on a CPU?

Ways to train the same network for the same steps take turns, so that a busy machine slows them
alike; a ratio is the median over rounds of images/s, the first, tracing step left out.

    python -m benchmarks.train_step      about 5 minutes on 2 cores
"""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from pipelines.data import datasets
from pipelines.data.splits import Splits
from pipelines.errors import UserError
from pipelines.recipes.catalog import get_recipe
from pipelines.recipes.recipe import Recipe
from pipelines.runtime import backend, provenance
from pipelines.tracking import tracked_run

STEPS = {"allconv-digits": 132, "allconv-cifar10": 10}
ROUNDS = 5


def main() -> None:
    """Measure the recipes whose data is prepared; print the ratios and record them."""
    backend.tensorflow()
    tags = provenance.tags()
    print(f"{tags['cpu']}, {tags['cores']} cores; ratios of images/s: median (least-most)")
    for name, steps in STEPS.items():
        recipe = get_recipe(name).override(steps=steps, learning_rate=1e-6, weight_decay=0)
        try:
            splits = datasets.load(recipe.data)
        except UserError as error:
            print(f"{name}: skipped. {error}")
            continue
        with tracked_run.tracked(
            f"train_step {name}", experiment="benchmarks", kind="benchmark", params=recipe.flat()
        ) as run:
            for row, ratios in compare(recipe, splits, run).items():
                spread = f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
                print(f"{name:>16}  {row:<10} {spread}")
                run.log({f"{row}_ratio": median(ratios)})


def compare(recipe: Recipe, splits: Splits, run: tracked_run.Run) -> dict[str, list[float]]:
    """Ratios of images/s, one a round.

    `feed`, `callbacks`, `journal`: with our feed over arrays in memory, then with our callbacks and
    then with tracking, each over the one before; `train` all of it over bare fit; `xla` XLA.
    """
    job = _job(recipe, splits)
    ways: dict[str, Callable[[], float]] = {
        "bare": lambda: bare(job, xla=False),
        "fed": lambda: fed(job),
        "silent": lambda: ours(job, lambda metrics, step: None),
        "tracked": lambda: ours(job, run.log),
        "xla": lambda: bare(job, xla=True),
    }
    rounds = [{way: measure() for way, measure in ways.items()} for _ in range(ROUNDS)]
    pairs = {
        "feed": ("fed", "bare"),
        "callbacks": ("silent", "fed"),
        "journal": ("tracked", "silent"),
        "train": ("tracked", "bare"),
        "xla": ("xla", "bare"),
    }
    return {row: [r[a] / r[b] for r in rounds] for row, (a, b) in pairs.items()}


def _job(recipe: Recipe, splits: Splits) -> Any:
    from pipelines.training import devices
    from pipelines.training.job import build_job

    return build_job(recipe, splits, devices.place(recipe))


def ours(job: Any, log: Callable[..., None]) -> float:
    """images/s of `train` by the clock at its steps' logs, but for those after a validation."""
    from pipelines.training.train import train

    ends: dict[int, float] = {}

    def timed_log(metrics: Any, step: int) -> None:
        log(metrics, step)
        if "batch_loss" in metrics:
            ends[step] = time.perf_counter()

    train(job, timed_log, test=False)
    took = [ends[step + 1] - ends[step] for step in [*ends][:-1] if step % job.epoch]
    return float(job.recipe.batch_size * len(took) / sum(took))


def fed(job: Any) -> float:
    """images/s of Keras's own fit on our feed, without our callbacks."""
    from pipelines.training import input_pipeline

    return timed(
        job, job.model(), lambda steps: input_pipeline.train(job.recipe, job.splits.train, 0, steps)
    )


def bare(job: Any, xla: bool) -> float:
    """images/s of Keras's own fit, SGD and arrays in memory."""
    import keras

    recipe, model = job.recipe, job.network()
    sgd = keras.optimizers.SGD(recipe.learning_rate, recipe.momentum)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(sgd, loss, jit_compile=xla)
    x, y = job.splits.train.take(slice(job.epoch * recipe.batch_size))

    def batches(steps: int) -> Any:
        import tensorflow as tf

        return tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(recipe.batch_size)

    return timed(job, model, batches)


def timed(job: Any, model: Any, batches: Callable[[int], Any]) -> float:
    """images/s of `fit` over the run's steps, by the clock at their ends."""
    import keras

    ends: list[float] = []
    steps = len(job.rates)
    callback = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: ends.append(time.perf_counter())
    )
    model.fit(batches(steps), steps_per_epoch=steps, callbacks=[callback], verbose=0)
    return float(job.recipe.batch_size * (len(ends) - 1) / (ends[-1] - ends[0]))


if __name__ == "__main__":
    main()
