#!/usr/bin/env bash
# The same Keras operation has other gradients at exactly 0 on another backend.
#
# One would expect `keras.ops.leaky_relu`, `maximum`, `abs` and `norm` to have one derivative at 0 on all
# backends, whichever it is, as `ops.relu` has (0).
# What happens: at 0 the derivative of `leaky_relu(x, 0.1)` is 0.1 on TensorFlow and PyTorch and 1 on JAX;
# that of `maximum(x, 0)`, a ReLU written by hand, is 1 on TensorFlow and 0.5 on the others, and that of
# `maximum(0, x)` is 0 on TensorFlow and 0.5 on the others; that of `abs` is 1 on JAX and 0 on the others; that
# of `norm` is 0 on PyTorch and NaN on the others.
# Source: keras/src/backend/{tensorflow,jax,torch}/: each calls its library's function, with that library's
# choice of a subgradient; jax.nn.leaky_relu is `where(x >= 0, x, slope * x)`.
# Consequence for a user: numbers that are exactly 0 are no accident where weights or biases start from zeros,
# channels are padded, or units were dropped. A layer whose inputs are all 0 at the start learns at ten
# times the rate on JAX, and a norm of zeros gives NaN weights at the first step on two backends of three.
# What works: `ops.relu`, which agrees, and `leaky_relu` as `relu(x) - 0.1 * relu(-x)`, which has 0 on all.
#
# Seen with Keras 3.15.1, TensorFlow 2.21.0, JAX 0.10.2, PyTorch 2.13.0, Python 3.11, x86-64 Linux, on a CPU.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet keras==3.15.1 tensorflow==2.21.0 jax==0.10.2 torch==2.13.0 >&2
cat > "$work/gradients.py" <<'PYTHON'
import keras
import numpy as np
from keras import ops

FUNCTIONS = {
    "relu(x)": ops.relu,
    "leaky_relu(x, 0.1)": lambda x: ops.leaky_relu(x, 0.1),
    "maximum(x, 0)": lambda x: ops.maximum(x, 0.0),
    "maximum(0, x)": lambda x: ops.maximum(0.0, x),
    "abs(x)": ops.abs,
    "norm(x)": ops.norm,
    "relu(x) - 0.1 relu(-x)": lambda x: ops.relu(x) - 0.1 * ops.relu(-x),
}


def gradient(function, at):
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        x = tf.Variable(at)
        with tf.GradientTape() as tape:
            y = ops.sum(function(x))
        return tape.gradient(y, x).numpy()
    if keras.backend.backend() == "jax":
        import jax

        return jax.grad(lambda x: ops.sum(function(x)))(at)
    import torch

    x = torch.tensor(at, requires_grad=True)
    ops.sum(function(x)).backward()
    return x.grad.numpy()


for name, function in FUNCTIONS.items():
    print(f"{name:24}{np.asarray(gradient(function, np.zeros(2, np.float32)))[0]:.2g}")
PYTHON
for backend in tensorflow jax torch; do
    KERAS_BACKEND=$backend TF_CPP_MIN_LOG_LEVEL=3 "$work/venv/bin/python" "$work/gradients.py" \
        2>"$work/said" >"$work/$backend" || { cat "$work/said" >&2; exit 1; }
    cut -c25- "$work/$backend" >"$work/$backend.numbers"
done
paste -d' ' <(cut -c-24 "$work/tensorflow") "$work"/{tensorflow,jax,torch}.numbers | tee "$work/seen"  # TensorFlow, JAX, PyTorch
diff "$work/seen" - <<'SEEN'
relu(x)                  0 0 0
leaky_relu(x, 0.1)       0.1 1 0.1
maximum(x, 0)            1 0.5 0.5
maximum(0, x)            0 0.5 0.5
abs(x)                   0 1 0
norm(x)                  nan nan 0
relu(x) - 0.1 relu(-x)   0 0 0
SEEN
echo "As seen."
