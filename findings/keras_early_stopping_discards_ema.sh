#!/usr/bin/env bash
# Keras' EarlyStopping with `restore_best_weights` throws away the averages that `use_ema` asked for.
#
# One would expect a network that `fit` trains with `use_ema=True` to end with the averages of its weights
# (its documentation: "this happens automatically after the last epoch, and you don't need to do anything").
# What happens: `fit` writes the averages into the network and then calls `on_train_end`, in which EarlyStopping
# restores the weights of the best epoch, and these are not averaged. Nothing is said. The optimizer still
# has the averages, of the last step.
# Source: keras/src/backend/{jax,tensorflow,torch}/trainer.py, `finalize_variable_values` above
# `callbacks.on_train_end`; keras/src/callbacks/early_stopping.py, `on_train_end`.
# Consequence for a user: the network that is stored and tested is the one without averages. What works:
# `SwapEMAWeights(swap_on_epoch=True)` in the list before EarlyStopping.
#
# Seen with Keras 3.15.1 on JAX 0.10.2, Python 3.11, Linux; on TensorFlow 2.21.0, too, which is not run here.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet keras==3.15.1 jax==0.10.2 >&2
cd "$work"
KERAS_BACKEND=jax "$work/venv/bin/python" - 2>"$work/said" <<'PYTHON' | tee "$work/seen"
import keras
import numpy as np

x = np.random.default_rng(0).normal(size=(256, 4)).astype("float32")
y = x @ np.array([[1], [-2], [3], [0.5]], "float32")
stop = keras.callbacks.EarlyStopping("loss", patience=9, restore_best_weights=True)
swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
for name, callbacks in {"alone": [], "EarlyStopping": [stop], "with swaps": [swap, stop]}.items():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, use_bias=False)])
    model.compile(keras.optimizers.SGD(0.01, use_ema=True, ema_momentum=0.9), "mse")
    moved = []  # weights at the end of every epoch, as they are moved by the optimizer
    first = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: moved.append(model.get_weights()[0])
    )
    model.fit(x, y, epochs=3, verbose=0, callbacks=[first, *callbacks])
    [average] = [v for v in model.optimizer.variables if "average" in v.path]
    end = model.get_weights()[0]
    is_last, is_average = np.array_equal(end, moved[-1]), np.array_equal(end, average)
    print(f"{name}: the last step's weights {is_last}, their averages {is_average}")
PYTHON
diff "$work/seen" - <<'SEEN' || { cat "$work/said" >&2; exit 1; }
alone: the last step's weights False, their averages True
EarlyStopping: the last step's weights True, their averages False
with swaps: the last step's weights False, their averages True
SEEN
echo "As seen."
