"""The precision of a training: of its layers, and of the products of its matrices.

To add one, name it in `Recipe.precision` and say here what it means on each backend.
Imports Keras at the top: import this module inside the functions that train.
"""

import contextlib
from collections.abc import Iterator

import keras


@contextlib.contextmanager
def layers_in(precision: str) -> Iterator[None]:
    """Build layers under the policy of a precision: their variables are float32 in each."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision if precision.startswith("mixed") else "float32")
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def set_matmul_precision(precision: str) -> None:
    """Set whether a GPU may round the factors of float32 products to 10 bits, which is faster.

    Each backend has a default of its own; here `tensorfloat32` means yes and `float32` no. What is
    left in float32 under `mixed_bfloat16` goes by JAX's default, and is not rounded elsewhere.
    """
    yes = precision == "tensorfloat32"
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_tensor_float_32_execution(yes)
    elif backend == "jax":
        import jax

        names = {"float32": "highest", "tensorfloat32": "tensorfloat32"}
        jax.config.update("jax_default_matmul_precision", names.get(precision))
    else:
        import torch

        torch.backends.fp32_precision = "tf32" if yes else "ieee"
