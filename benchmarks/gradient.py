"""What does theory's gradient cost beside TensorFlow's automatic one, and beside bare GEMM?

Everything is measured twice, in a process each: with one thread, in seconds of the processor, which
other programs disturb less; and on all cores, in seconds of the clock, ours with the batch split
over them and one BLAS thread a core, as sweeps do it. Compilation is left out, and every way must
give the same gradient. The GEMM rate, for one thread, is that of NumPy's product of two 256 x 256
float64 matrices.

    python -m benchmarks.gradient      about 2 minutes on 2 idle cores
"""

import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from timeit import Timer
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import side_by_side
from pipelines.runtime import backend, provenance
from theory.linear_resnet import gradient

Array = NDArray[np.float64]
SIZES = ((64, 32, 16), (16, 64, 64), (4, 32, 256))  # batch, depth, width
ROUNDS = 7


def main() -> None:
    """Measure every size with all threads and with one; print the ratios and record them."""
    side_by_side.print_title("Seconds over ours")
    for threads in (0, 1):  # 0: all
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            for size in SIZES:
                ratios = process.submit(compare, *size, threads).result()
                params = dict(zip(("batch", "depth", "width"), size, strict=True))
                name = f"gradient {'x'.join(map(str, size))}, threads: {threads or 'all'}"
                side_by_side.report(name, ratios, **params, rounds=ROUNDS, threads=threads)


def compare(batch: int, depth: int, width: int, threads: int) -> side_by_side.Rounds:
    """Return the seconds of TensorFlow's ways over ours, and our share of the GEMM rate."""
    A, R, sigma = instances(batch, depth, width)
    automatic = tensorflow_ways(A, R, sigma, threads)
    expected = gradient(A, R, sigma)
    for way in automatic.values():  # the first call compiles
        np.testing.assert_allclose(way(), expected, rtol=1e-9, atol=1e-12 * expected.max())
    X, Y, out = np.random.default_rng(1).normal(size=(3, 256, 256))
    ways: dict[str, Callable[[], Any]] = {
        "ours": (lambda: gradient(A, R, sigma)) if threads == 1 else split(A, R, sigma),
        **automatic,
        "gemm": lambda: np.matmul(X, Y, out=out),
    }
    timer = time.process_time if threads == 1 else time.perf_counter

    def seconds(way: Callable[[], Any]) -> float:
        calls, total = Timer(way, timer=timer).autorange()  # calls that last 0.2 s together
        return total / calls

    with threadpool_limits(1, user_api="blas"):
        timed = {name: lambda way=way: seconds(way) for name, way in ways.items()}
        took = side_by_side.take_turns(timed, ROUNDS)
    ratios = {f"{name}_over_ours": took[name] / took["ours"] for name in automatic}
    if threads == 1:  # 6 l d^3 flops are counted
        products = 3 * batch * depth * (width / 256) ** 3
        ratios["of_gemm_rate"] = products * took["gemm"] / took["ours"]
    return ratios


def split(A: Array, R: Array, sigma: Array) -> Callable[[], Any]:
    """Return our gradient of a batch, with a part of it on every core."""
    cores = min(provenance.count_cores(), len(A))
    parts = [np.array_split(X, cores) for X in (A, R, sigma)]
    pool = ThreadPoolExecutor(cores)
    return lambda: list(pool.map(gradient, *parts))


def instances(batch: int, depth: int, width: int) -> tuple[Array, Array, Array]:
    """Return layers of norms near 0.6, targets and covariances of a batch of networks."""
    rng, scale = np.random.default_rng(0), 1 / np.sqrt(width)
    A = 0.3 * scale * rng.normal(size=(batch, depth, width, width))
    R, root = scale * rng.normal(size=(2, batch, width, width))
    return A, R, root @ root.mT


def tensorflow_ways(
    A: Array, R: Array, sigma: Array, threads: int
) -> dict[str, Callable[[], Array]]:
    """Return GradientTape on one network after the other, and compiled for the whole batch."""
    tf = backend.tensorflow()
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)

    def automatic(A: Any, R: Any, sigma: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(A)
            P = tf.eye(A.shape[-1], dtype=A.dtype)
            for layer in tf.unstack(A, axis=-3):
                P += layer @ P
            E = P - R
            risk = tf.reduce_sum(E * (E @ sigma))
        return tape.gradient(risk, A)

    batch = tuple(tf.constant(X) for X in (A, R, sigma))
    networks = list(zip(*map(tf.unstack, batch), strict=True))
    graph, xla = tf.function(automatic), tf.function(automatic, jit_compile=True)
    return {
        "tape": lambda: np.stack([automatic(*network).numpy() for network in networks]),
        "graph": lambda: np.asarray(graph(*batch).numpy()),
        "xla": lambda: np.asarray(xla(*batch).numpy()),
    }


if __name__ == "__main__":
    main()
