"""What does our training cost over bare Keras `fit`, and does XLA pay on a CPU?

Ways to train the same network for the same steps; the first, tracing step is left out.

    python -m benchmarks.train_step      about 5 minutes on 2 cores
"""

import time
from collections.abc import Callable
from typing import Any

from benchmarks import side_by_side
from pipelines.data import datasets
from pipelines.errors import UserError
from pipelines.recipes.catalog import get_recipe
from pipelines.tracking import tracked_run

STEPS = {"allconv-digits": 132, "allconv-cifar10": 10}
ROUNDS = 5


def main() -> None:
    """Measure the recipes whose data is prepared; print the ratios and record them."""
    side_by_side.print_title("Ratios of images/s")
    for name, steps in STEPS.items():
        recipe = get_recipe(name).override(steps=steps, learning_rate=1e-6, weight_decay=0)
        try:
            splits = datasets.load(recipe.data)
        except UserError as error:
            print(f"{name}: skipped. {error}")
            continue
        ratios = compare(side_by_side.build_job(recipe, splits))
        side_by_side.report(f"train_step {name}", ratios, **recipe.flat())


def compare(job: Any) -> side_by_side.Rounds:
    """Return ratios of images/s.

    `feed`, `callbacks`, `journal`: with our feed over arrays in memory, then with our callbacks and
    then with tracking, each over the one before; `train` all of it over bare fit; `xla` XLA.
    """
    with (
        side_by_side.temporary_database(),
        tracked_run.track("steps", experiment="benchmarks", kind="training") as run,
    ):
        ways = {
            "bare": lambda: fit_arrays(job, xla=False),
            "feed": lambda: fit_feed(job),
            "callbacks": lambda: side_by_side.images_per_s(job),
            "journal": lambda: side_by_side.images_per_s(job, run.log),
            "xla": lambda: fit_arrays(job, xla=True),
        }
        rates = side_by_side.take_turns(ways, ROUNDS)
    return {
        "feed_ratio": rates["feed"] / rates["bare"],
        "callbacks_ratio": rates["callbacks"] / rates["feed"],
        "journal_ratio": rates["journal"] / rates["callbacks"],
        "train_ratio": rates["journal"] / rates["bare"],
        "xla_ratio": rates["xla"] / rates["bare"],
    }


def fit_feed(job: Any) -> float:
    """Return the images/s of Keras's own fit on our feed, without our callbacks."""
    from pipelines.training import input_pipeline

    return time_fit(
        job, job.model(), lambda steps: input_pipeline.train(job.recipe, job.splits.train, 0, steps)
    )


def fit_arrays(job: Any, xla: bool) -> float:
    """Return the images/s of Keras's own fit, with SGD and arrays in memory."""
    import keras
    import tensorflow as tf

    recipe, model = job.recipe, job.network()
    sgd = keras.optimizers.SGD(recipe.learning_rate, recipe.momentum)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(sgd, loss, jit_compile=xla)
    arrays = job.splits.train.take(slice(job.epoch * recipe.batch_size))
    batches = tf.data.Dataset.from_tensor_slices(arrays).repeat().batch(recipe.batch_size)
    return time_fit(job, model, lambda steps: batches)


def time_fit(job: Any, model: Any, batches: Callable[[int], Any]) -> float:
    """Return the images/s of `fit` over the run's steps, by the clock at their ends."""
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
