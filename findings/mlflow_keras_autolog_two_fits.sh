#!/usr/bin/env bash
# Of a network that is trained in two stages, autologging records the second one wrongly or not at all.
#
# One would expect `mlflow.keras.autolog()` to record both calls of `fit` that stand in one run, as where
# layers are frozen at first and trained at last: Keras counts epochs on by `initial_epoch`.
# What happens depends on the arguments of the second call. If one of them differs from the first's, such as
# `epochs` and `initial_epoch`, nothing of the second stage is recorded, for a parameter of a run cannot be
# changed, and autologging gives up with a warning; the run is FINISHED. If they are equal, the second
# stage is recorded at the steps of the first, so that the curve goes back to epoch 0; and if the network
# was compiled anew in between, the rate stays that of the first stage.
# Source: mlflow/keras/autologging.py, `log_fn_args_as_params` before the callback is made, and
# mlflow/keras/callback.py, `log_metrics(logs, step=epoch)`.
# Consequence for a user: curves and last values of a fine-tuned network are those before fine-tuning, or
# two curves in one. What works: a nested run for the second stage.
#
# Seen with MLflow 3.17.2, Keras 3.15.1 on JAX 0.10.2, Python 3.11, Linux.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet mlflow==3.17.2 keras==3.15.1 jax==0.10.2 >&2
cd "$work"
KERAS_BACKEND=jax MLFLOW_DISABLE_TELEMETRY=true MLFLOW_TRACKING_URI="sqlite:///$work/mlflow.db" \
  "$work/venv/bin/python" - 2>"$work/said" <<'PYTHON' | tee "$work/seen"
from contextlib import nullcontext

import keras
import mlflow
import numpy as np

x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
y = (x[:, 0] > 0).astype("int32")
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
mlflow.keras.autolog(log_models=False)
client = mlflow.MlflowClient()
stages = {
    "epochs=5, initial_epoch=2": {"epochs": 5, "initial_epoch": 2},
    "epochs=2 again": {"epochs": 2},
    "epochs=2 again, another rate": {"epochs": 2},
    "epochs=5, initial_epoch=2, nested": {"epochs": 5, "initial_epoch": 2},
}
for name, second in stages.items():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.5), loss)
    with mlflow.start_run() as run:
        model.fit(x, y, epochs=2, verbose=0)
        if "rate" in name:
            model.compile(keras.optimizers.SGD(0.25), loss)
        with mlflow.start_run(nested=True) if "nested" in name else nullcontext(run) as later:
            trained = model.fit(x, y, verbose=0, **second)
    print(f"{name}: trained {len(trained.epoch)} epochs more")
    for run_id in dict.fromkeys([run.info.run_id, later.info.run_id]):
        found = client.get_run(run_id)
        steps = [each.step for each in client.get_metric_history(run_id, "loss")]
        rate = float(found.data.params["optimizer_learning_rate"])
        print(f"  {found.info.status}, losses at {steps}, rate {rate}")
PYTHON
diff "$work/seen" - <<'SEEN' || { cat "$work/said" >&2; exit 1; }
epochs=5, initial_epoch=2: trained 3 epochs more
  FINISHED, losses at [0, 1], rate 0.5
epochs=2 again: trained 2 epochs more
  FINISHED, losses at [0, 1, 0, 1], rate 0.5
epochs=2 again, another rate: trained 2 epochs more
  FINISHED, losses at [0, 1, 0, 1], rate 0.5
epochs=5, initial_epoch=2, nested: trained 3 epochs more
  FINISHED, losses at [0, 1], rate 0.5
  FINISHED, losses at [2, 3, 4], rate 0.5
SEEN
echo "As seen."
