"""TensorFlow without its start-up chatter on a newcomer's terminal."""

import logging
import os
import sys
from typing import Any


def tensorflow() -> Any:
    """The imported module; what its C++ side writes before its log level counts is dropped."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.getLogger("absl").setLevel(logging.ERROR)
    sys.stderr.flush()
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)  # the file descriptor, since C++ does not know sys.stderr
        import tensorflow as tf
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)
    return tf
