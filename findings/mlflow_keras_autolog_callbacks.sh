#!/usr/bin/env bash
# A list of callbacks that two networks share splits the second one's run in two.
#
# One would expect `mlflow.keras.autolog()` to record each call of `fit` in a run of its own, also where
# all get the same list of callbacks, as in a cross validation; Keras itself does not change that list.
# What happens: autologging appends its callback to the list that the caller holds. At the next `fit` it
# finds its own callback there, takes it for one that the caller added, and gives up: the run that it had
# begun is FAILED and has parameters but no metric. Training goes on, the callback that was left in the
# list begins another run, and this one has the metrics and no `epochs`, stays RUNNING, and stays active:
# the next `mlflow.start_run()` raises. A warning is logged.
# Source: mlflow/keras/autologging.py, `callbacks.append(mlflow_callback)` in `_patched_inference`, and
# `_check_existing_mlflow_callback`. MLflow's pull request 4195 had mended the same for tf.keras in 2021.
# Consequence for a user: of k folds one run is right. What works: a copy of the list for every `fit`.
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
import keras
import mlflow
import numpy as np

x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
y = (x[:, 0] > 0).astype("int32")
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
mlflow.keras.autolog(log_models=False)
client = mlflow.MlflowClient()


for way in ("a copy for every fit", "one list"):
    experiment = mlflow.set_experiment(way).experiment_id
    callbacks = [keras.callbacks.EarlyStopping("loss", patience=9)]
    for _ in range(2):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        model.compile("sgd", loss)
        given = [*callbacks] if "copy" in way else callbacks
        model.fit(x, y, epochs=3, verbose=0, callbacks=given)
    mlflow.flush_async_logging()
    print(f"{way}: {[type(each).__name__ for each in callbacks]}")
    for run in reversed(client.search_runs([experiment])):
        points = client.get_metric_history(run.info.run_id, "loss")
        print(f"  {run.info.status}, {len(points)} losses, epochs {run.data.params.get('epochs')}")
print("active:", mlflow.active_run() is not None)
PYTHON
diff "$work/seen" - <<'SEEN' || { cat "$work/said" >&2; exit 1; }
a copy for every fit: ['EarlyStopping']
  FINISHED, 3 losses, epochs 3
  FINISHED, 3 losses, epochs 3
one list: ['EarlyStopping', 'MlflowCallback']
  FINISHED, 3 losses, epochs 3
  FAILED, 0 losses, epochs 3
  RUNNING, 3 losses, epochs None
active: True
SEEN
echo "As seen."
