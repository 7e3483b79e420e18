"""What does each habit of training on a GPU give, and where does the rest of its peak go?

One step more a row: pictures cut on the host, pictures that stay on the device, many steps in one
call, coarser products. Below them the gradient alone, of one batch that is there already: what it
gains over the last row goes to the optimizer, the decay, the metrics and the cutting of pictures.
Beside images/s stands the share of the device's rate of matrix products in that precision. The ways
are processes that take turns. On a GPU the network of HM Table 1 in full; on a CPU its narrow form,
in float32, since coarser products are no faster there; and with JAX, whose convolutions are slow in
loops on a CPU, one step a call.

    python -m benchmarks.accelerator      about 5 minutes on 2 cores; needs cifar10; also on JAX
"""

import dataclasses
import json
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

ROUNDS = 3
SIZES = {"GPU": (8192, 100), "CPU": (2048, 4)}  # of the matrices whose product is timed, how often
PRECISIONS = ("float32", "tensorfloat32", "mixed_bfloat16")
HABITS: dict[str, dict[str, Any]] = {
    "host": {"pictures": "host", "per_call": 1},
    "resident": {"pictures": "device", "per_call": 1},
    "calls": {"pictures": "device", "per_call": 50},
}


def main() -> None:
    """Print and record each way's images/s, over the first, and its share of the peak."""
    datasets.load("cifar10", 1)  # a sentence where it is not prepared
    device, accelerated = apart("device")
    precisions = PRECISIONS if accelerated else PRECISIONS[:1]
    habits = list(HABITS) if accelerated or backend.backend() != "jax" else list(HABITS)[:2]
    ways = [
        *(f"{habit} {precisions[0]}" for habit in habits),
        *(f"calls {precision}" for precision in precisions[1:]),
        *(f"gradient {precision}" for precision in precisions),
    ]
    print(f"{device}, {backend.backend()}, {provenance.tags()['cpu']}; median (least-most)")
    with tracked_run.tracked(
        "accelerator", experiment="benchmarks", kind="benchmark", params={"device": device}
    ) as run:
        rounds = [{way: apart(way) for way in ways} for _ in range(ROUNDS)]
        peaks = {each: apart(f"product {each}") for each in precisions}
        for way in ways:
            rates = [each[way]["images_per_s"] for each in rounds]
            over = [each[way]["images_per_s"] / each[ways[0]]["images_per_s"] for each in rounds]
            share = median(rates) * rounds[0][way]["gflop"] / peaks[way.split()[1]]
            print(
                f"{way:>26}  {median(rates):8.0f} images/s  {median(over):5.2f} "
                f"({min(over):.2f}-{max(over):.2f}) of the first  share of peak {share:.2f}"
            )
            key = way.replace(" ", "/")
            run.log({f"{key}/images_per_s": median(rates), f"{key}/of_peak": share})
        for precision, peak in peaks.items():
            print(f"{'matrix product ' + precision:>26}  {peak:8.0f} GFLOP/s")


def apart(way: str) -> Any:
    """The result of one way, from a process of its own."""
    words = [sys.executable, "-m", "benchmarks.accelerator", *way.split()]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{way} ended with code {done.returncode}. {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def recipe(precision: str, **habits: Any) -> Recipe:
    """As published on a GPU, for an epoch; the narrow form for 100 steps on a CPU."""
    accelerated = device()[1]
    chosen = get_recipe("allconv-cifar10", "paper" if accelerated else "cpu")
    return chosen.override(
        steps=350 if accelerated else 100,
        train_examples=None if accelerated else 100 * chosen.batch_size,
        learning_rate=1e-6,
        precision=precision,
        **habits,
    )


def device() -> tuple[str, bool]:
    """What trains here, and whether it is a GPU."""
    from pipelines.training import devices

    place = devices.place(get_recipe("allconv-cifar10"))
    return str(place), place.is_accelerator


def trained(precision: str, habit: str) -> dict[str, float]:
    """images/s of `train` from the end of its first call to the end of its last."""
    from pipelines.training.train import train

    job, ends = _job(recipe(precision, **HABITS[habit])), list[tuple[int, float]]()

    def log(metrics: Any, step: int) -> None:
        if "batch_loss" in metrics:
            ends.append((step, time.perf_counter()))

    network = train(job, log, test=False).model
    (first, start), (last, end) = ends[0], ends[-1]
    return _rate(network, (last - first) * job.recipe.batch_size, end - start)


def _job(chosen: Recipe) -> Any:
    """The job of a recipe, with few pictures to validate on."""
    from pipelines.training import devices
    from pipelines.training.job import build_job

    place, splits = devices.place(chosen), datasets.load("cifar10", chosen.train_examples)
    few = {part: _first(getattr(splits, part), 128) for part in ("val", "test")}
    return build_job(chosen, dataclasses.replace(splits, **few), place)


def _first(split: Any, count: int) -> Any:
    return dataclasses.replace(split, x=split.x[:count], y=split.y[:count])


def gradient(precision: str) -> dict[str, float]:
    """images/s of the loss and its gradient, of one batch that stays on the device."""
    import keras

    job = _job(recipe(precision, pictures="host"))
    model, count = job.model(), 100 if job.place.is_accelerator else 20
    x, y = job.splits.train.train_batch(0, job.recipe.batch_size, 0, shift=4)
    step = {"tensorflow": _tensorflow, "jax": _jax}[keras.backend.backend()](model, x, y)
    step()
    start = time.perf_counter()
    for _ in range(count):
        found = step()
    keras.ops.convert_to_numpy(found)  # waits for the last
    return _rate(model, count * len(y), time.perf_counter() - start)


def _tensorflow(model: Any, x: Any, y: Any) -> Callable[[], Any]:
    import tensorflow as tf

    x, y = tf.constant(x), tf.constant(y)

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model.loss(y, model(x, training=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        return tf.add_n([tf.reduce_sum(each) for each in gradients])

    compiled: Callable[[], Any] = tf.function(step, jit_compile=bool(model.jit_compile))
    return compiled


def _jax(model: Any, x: Any, y: Any) -> Callable[[], Any]:
    import jax

    def loss(trained: Any, fixed: Any) -> Any:
        outputs, _ = model.stateless_call(trained, fixed, x, training=True)
        return jax.numpy.mean(model.loss(y, outputs))

    def summed(trained: Any, fixed: Any) -> Any:
        return sum(each.sum() for each in jax.grad(loss)(trained, fixed))

    trained = [variable.value for variable in model.trainable_variables]
    fixed = [variable.value for variable in model.non_trainable_variables]
    x, y, compiled = jax.device_put(x), jax.device_put(y), jax.jit(summed)
    return lambda: compiled(trained, fixed)


def product(precision: str) -> float:
    """GFLOP/s of square matrix products in that precision."""
    import keras

    from pipelines.training import devices

    devices.round_products(precision)
    size, count = SIZES["GPU" if device()[1] else "CPU"]
    kind = "bfloat16" if precision.startswith("mixed") else "float32"
    a = keras.ops.cast(keras.random.normal((size, size), seed=0) / size**0.5, kind)
    keras.ops.convert_to_numpy(keras.ops.matmul(a, a)[0, 0])
    b, start = a, time.perf_counter()
    for _ in range(count):
        b = keras.ops.matmul(a, b)
    keras.ops.convert_to_numpy(b[0, 0])
    return 2e-9 * size**3 * count / (time.perf_counter() - start)


def _rate(model: Any, images: int, seconds: float) -> dict[str, float]:
    """images/s, and the operations of an image: those of the convolutions, three times."""
    import keras

    convolutions = [each for each in model.layers if isinstance(each, keras.layers.Conv2D)]
    products = sum(
        each.kernel.shape[0] * each.kernel.shape[1] * each.kernel.shape[2] * _size(each.output)
        for each in convolutions
    )
    return {"images_per_s": images / seconds, "gflop": 3 * 2e-9 * products}


def _size(tensor: Any) -> int:
    _, height, width, channels = tensor.shape
    return int(height * width * channels)


if __name__ == "__main__":
    try:
        if not sys.argv[1:]:
            main()
        else:
            backend.keras()
            way, *precision = sys.argv[1:]
            ways = {"device": device, "gradient": gradient, "product": product}
            own = ways.get(way) or (lambda chosen: trained(chosen, way))
            print(json.dumps(own(*precision)))  # type: ignore[operator]
    except UserError as error:
        sys.exit(f"error: {error}")
