"""What does each habit of training on a GPU give, and where does the rest of its peak go?

One habit more a row, then the gradient alone, of one batch that is on the device: what it gains
over the last row goes to the optimizer, the decay, the metrics and the cutting of pictures. Beside
images/s stands the share of the device's rate of matrix products in that precision. The network is
that of HM Table 1; on a CPU its narrow form, without `tensorfloat32`, which changes nothing there,
and with JAX, whose convolutions are slow in loops there, one step a call.

    python -m benchmarks.accelerator      about 5 minutes on 2 cores; needs cifar10; also on JAX
"""

import dataclasses
import functools
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks import side_by_side
from pipelines.cli.shell import run_command_safely
from pipelines.data import datasets
from pipelines.errors import Unavailable
from pipelines.recipes.catalog import get_recipe
from pipelines.recipes.recipe import Recipe
from pipelines.runtime import backend, subcommands

ROUNDS = 3
SIZES = {"GPU": (8192, 100), "CPU": (2048, 4)}  # matrices whose product is timed, how often
PRECISIONS = ("float32", "tensorfloat32", "mixed_bfloat16")
HABITS: dict[str, dict[str, Any]] = {
    "host": {"pictures": "host", "steps_per_execution": 1},
    "resident": {"pictures": "device", "steps_per_execution": 1},
    "calls": {"pictures": "device", "steps_per_execution": 50},
}


def main(arguments: list[str]) -> None:
    """Compare all ways; one that is named is measured here, as JSON on standard output."""
    if not arguments:
        compare()
        return
    backend.keras()
    way, *precision = arguments
    ways: dict[str, Callable[..., Any]] = {
        "device": describe_device,
        "gradient": time_gradient,
        "product": time_product,
    }
    measure = ways.get(way) or functools.partial(time_training, habit=way)
    print(json.dumps(measure(*precision)))


def compare() -> None:
    """Print and record each way's images/s, over the first, and its share of the peak."""
    datasets.load("cifar10", 1)  # UserError where it is not prepared
    device, accelerated = in_process("device")
    precisions = PRECISIONS if accelerated else ("float32", "mixed_bfloat16")
    habits = list(HABITS) if accelerated or backend.name() != "jax" else list(HABITS)[:2]
    names = [
        *(f"{habit} {precisions[0]}" for habit in habits),
        *(f"calls {precision}" for precision in precisions[1:]),
        *(f"gradient {precision}" for precision in precisions),
    ]
    side_by_side.print_title(f"{device}, {backend.name()}")
    gflop: dict[str, float] = {}

    def rate(way: str) -> float:
        images_per_s, gflop[way] = in_process(way)
        return float(images_per_s)

    ways = {name: lambda name=name: rate(name) for name in names}
    rates = side_by_side.take_turns(ways, ROUNDS)
    peaks = {precision: in_process(f"product {precision}") for precision in precisions}
    numbers = {f"peak/{precision}_gflop_per_s": peak for precision, peak in peaks.items()}
    for name in names:
        key = name.replace(" ", "/")
        numbers[f"{key}/images_per_s"] = rates[name]
        numbers[f"{key}/over_first"] = rates[name] / rates[names[0]]
        numbers[f"{key}/of_peak"] = rates[name] * gflop[name] / peaks[name.split()[1]]
    side_by_side.report("accelerator", numbers, device=device)


def in_process(way: str) -> Any:
    """Return the result of one way, from a process of its own."""
    pipe = subprocess.PIPE
    words = ("benchmarks.accelerator", *way.split())
    with subcommands.start(words, {}, stdout=pipe, stderr=pipe) as child:
        output, errors = child.communicate()
    if child.returncode:
        raise Unavailable(f"{way} ended with code {child.returncode}. {errors.decode()}")
    return json.loads(output.splitlines()[-1])


def describe_device() -> tuple[str, bool]:
    """Return what trains here, and whether it is a GPU."""
    from pipelines.training import devices

    place = devices.place(None)
    return str(place), place.is_accelerator


def build_job(precision: str, **habits: Any) -> Any:
    """Return an epoch as published on a GPU; 100 steps of the narrow form on a CPU."""
    accelerated = describe_device()[1]
    base = get_recipe("allconv-cifar10", "paper" if accelerated else "cpu")
    recipe: Recipe = base.override(
        steps=350 if accelerated else 100,
        train_examples=None if accelerated else 100 * base.batch_size,
        learning_rate=1e-6,
        precision=precision,
        **habits,
    )
    splits = datasets.load("cifar10", recipe.train_examples)
    few = dataclasses.replace(splits, val=splits.val.head(128))
    return side_by_side.build_job(recipe, few)


def time_training(precision: str, habit: str) -> tuple[float, float]:
    """Return the images/s of `train`, and the GFLOP of an image."""
    job = build_job(precision, **HABITS[habit])
    return side_by_side.images_per_s(job), gflop_per_image(job.network())


def time_gradient(precision: str) -> tuple[float, float]:
    """Return the images/s of the loss and its gradient, of one batch that stays on the device."""
    import keras

    job = build_job(precision, pictures="host")
    model, count = job.model(), 100 if job.place.is_accelerator else 20
    x, y = job.splits.train.train_batch(0, job.recipe.batch_size, 0, shift=4)
    step = {"tensorflow": _tensorflow, "jax": _jax}[keras.backend.backend()](model, x, y)
    step()
    start = time.perf_counter()
    for _ in range(count):
        total = step()
    keras.ops.convert_to_numpy(total)  # waits for the last
    return count * len(y) / (time.perf_counter() - start), gflop_per_image(model)


def _tensorflow(model: Any, x: Any, y: Any) -> Callable[[], Any]:
    """Return a step of TensorFlow: the sum of all gradients, so that none is left out."""
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
    """Return the same step of JAX."""
    import jax

    def loss(trained: Any, fixed: Any) -> Any:
        outputs, _ = model.stateless_call(trained, fixed, x, training=True)
        return jax.numpy.mean(model.loss(y, outputs))

    def gradient_sum(trained: Any, fixed: Any) -> Any:
        return sum(each.sum() for each in jax.grad(loss)(trained, fixed))

    trained = [variable.value for variable in model.trainable_variables]
    fixed = [variable.value for variable in model.non_trainable_variables]
    x, y, compiled = jax.device_put(x), jax.device_put(y), jax.jit(gradient_sum)
    return lambda: compiled(trained, fixed)


def time_product(precision: str) -> float:
    """Return the GFLOP/s of square matrix products in that precision."""
    import keras

    from pipelines.training.precision import set_matmul_precision

    set_matmul_precision(precision)
    size, count = SIZES["GPU" if describe_device()[1] else "CPU"]
    kind = "bfloat16" if precision.startswith("mixed") else "float32"
    a = keras.ops.cast(keras.random.normal((size, size), seed=0) / size**0.5, kind)
    float(keras.ops.matmul(a, a)[0, 0])
    b, start = a, time.perf_counter()
    for _ in range(count):
        b = keras.ops.matmul(a, b)
    float(b[0, 0])  # waits for the last; NumPy has no bfloat16
    return 2e-9 * size**3 * count / (time.perf_counter() - start)


def gflop_per_image(model: Any) -> float:
    """Return the operations that an image needs: those of the convolutions, three times."""
    import keras

    convolutions = [each for each in model.layers if isinstance(each, keras.layers.Conv2D)]
    products: int = sum(
        math.prod(each.kernel.shape[:3]) * math.prod(each.output.shape[1:]) for each in convolutions
    )
    return 3 * 2e-9 * products


if __name__ == "__main__":
    sys.exit(run_command_safely(main, sys.argv[1:]))
