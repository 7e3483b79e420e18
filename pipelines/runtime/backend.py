"""Keras's backends without their start-up messages on a newcomer's terminal."""

import contextlib
import importlib.util
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pipelines.errors import UserError

NAMES = ("tensorflow", "jax", "torch")


def name() -> str:
    """Return the name of the backend that trains: KERAS_BACKEND, else tensorflow."""
    os.environ["KERAS_BACKEND"] = os.environ.get("KERAS_BACKEND") or "tensorflow"
    return os.environ["KERAS_BACKEND"]


def tensorflow() -> Any:
    """Return the module; beside another backend without GPUs, whose memory it would reserve."""
    with _start_up():
        import tensorflow as tf

        tf.config.list_physical_devices()  # looks for GPUs, and says so
    if name() != "tensorflow":
        with contextlib.suppress(RuntimeError):  # it runs already
            tf.config.set_visible_devices([], "GPU")
    return tf


def check() -> None:
    """Raise UserError unless the backend is installed, which is not loaded."""
    if name() not in NAMES:
        raise _not_installed("no backend that trains")
    if not importlib.util.find_spec(name()):
        raise _not_installed(f"No module named '{name()}'")


def keras() -> Any:
    """Return the module, on its backend. Raise UserError if that is not installed."""
    check()
    try:
        with _start_up():
            import keras
    except (ImportError, ValueError) as error:
        raise _not_installed(error) from error
    with contextlib.suppress(ImportError):
        tensorflow()  # Keras imports it where it can, to seed it
    return keras


def _not_installed(why: object) -> UserError:
    return UserError(
        "KERAS_BACKEND must name an installed backend: tensorflow, jax or torch. Received: "
        f"{name()} ({why}). Set KERAS_BACKEND, or install it."
    )


@contextmanager
def _start_up() -> Iterator[None]:
    """Set what TensorFlow reads as it is imported, and drop what C++ writes meanwhile.

    By default oneDNN is on only where a CPU has instructions for networks (AVX512_VNNI and such:
    TensorFlow 2.9, release notes); it pays without them as well (LOG.md, 2026-11-26).
    """
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for library in ("absl", "tensorflow"):  # which finds that each new network is traced anew
        logging.getLogger(library).setLevel(logging.ERROR)
    sys.stderr.flush()
    standard_error, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)  # the file descriptor, since C++ does not know sys.stderr
        yield
    finally:
        os.dup2(standard_error, 2)
        os.close(standard_error)
        os.close(null)
