"""What does our training cost over bare Keras `fit`, and does XLA pay on a CPU?

Three ways to train the same network for the same steps take turns, so that a busy machine slows
them alike; a ratio is the median over rounds of images/s, the first, tracing step left out.

    python -m benchmarks.train_step      about 3 minutes on 2 cores
"""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from pipelines import data, provenance, quiet, tracking
from pipelines.batches import Splits
from pipelines.errors import UserError
from pipelines.recipes import Recipe, named

STEPS = {"allconv-digits": 132, "allconv-cifar10": 10}
ROUNDS = 5


def main() -> None:
    """Measure the recipes whose data is prepared; print the ratios and record them."""
    quiet.tensorflow()
    tags = provenance.tags()
    print(f"{tags['cpu']}, {tags['cores']} cores; images/s over bare fit: median (least-most)")
    for name, steps in STEPS.items():
        recipe = named(name).override(steps=steps, learning_rate=1e-6, weight_decay=0)
        try:
            splits = data.load(recipe.data)
        except UserError as error:
            print(f"{name}: skipped. {error}")
            continue
        with tracking.tracked(
            f"train_step {name}", experiment="benchmarks", kind="benchmark", params=recipe.flat()
        ) as run:
            for row, ratios in compare(recipe, splits, run).items():
                spread = f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
                print(f"{name:>16}  {row:<10} {spread}")
                run.log({f"{row}_over_bare": median(ratios)})


def compare(recipe: Recipe, splits: Splits, run: tracking.Run) -> dict[str, list[float]]:
    """images/s of our training, and of bare fit under XLA, over bare fit; one ratio a round."""
    ways: dict[str, Callable[[], float]] = {
        "bare": lambda: bare(recipe, splits, xla=False),
        "train": lambda: ours(recipe, splits, run),
        "xla": lambda: bare(recipe, splits, xla=True),
    }
    rounds = [{way: measure() for way, measure in ways.items()} for _ in range(ROUNDS)]
    return {way: [r[way] / r["bare"] for r in rounds] for way in ways if way != "bare"}


def ours(recipe: Recipe, splits: Splits, run: tracking.Run) -> float:
    """images/s of `train`, with its stream, curves and journal; validation is not counted."""
    import tensorflow as tf

    from pipelines.train import plan, train

    rates = plan(recipe, len(splits.train))
    strategy = tf.distribute.get_strategy()
    return train(recipe, splits, rates, strategy, run.log, test=False).metrics["images_per_s"]


def bare(recipe: Recipe, splits: Splits, xla: bool) -> float:
    """images/s of Keras's own fit, SGD and arrays in memory."""
    import keras

    from pipelines.train import compiled, plan

    keras.utils.set_random_seed(recipe.seed)
    model = compiled(recipe, splits, plan(recipe, len(splits.train)))
    sgd = keras.optimizers.SGD(recipe.learning_rate, recipe.momentum)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(sgd, loss, jit_compile=xla)
    steps = recipe.steps or 1
    epoch = min(steps, len(splits.train) // recipe.batch_size)
    x, y = splits.train.take(slice(epoch * recipe.batch_size))
    ends: list[float] = []

    def note(batch: int, logs: Any) -> None:
        ends.append(time.perf_counter())

    callback = keras.callbacks.LambdaCallback(on_train_batch_end=note)
    epochs = steps // epoch
    model.fit(x, y, recipe.batch_size, epochs=epochs, callbacks=[callback], verbose=0)
    return recipe.batch_size * (len(ends) - 1) / (ends[-1] - ends[0])


if __name__ == "__main__":
    main()
