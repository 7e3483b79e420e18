#!/usr/bin/env bash
# MLflow cannot store an input example with a Keras model.
#
# One would expect `mlflow.keras.log_model(model, name=..., input_example=x)`, as documented, to store
# the example beside the model, as the other flavors do.
# What happens: FileNotFoundError, for the example is written before the folder of the model is made.
# With a signature instead of an example the same call stores the model. The run around the call is
# FAILED.
# Source: mlflow/keras/save.py, `save_model` (`_save_example` stands above `os.makedirs`); MLflow's issue
# 16183, open since version 2.22.
# Consequence for a user: where the model is logged at the end of a training, with an example, it is not
# logged. What works: log it with a signature, and add the example to the stored model oneself.
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

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
x = np.ones((1, 4), np.float32)
ways = {
    "signature": {"signature": mlflow.models.infer_signature(x, np.asarray(model(x)))},
    "input_example": {"input_example": x},
}
for name, way in ways.items():
    try:
        with mlflow.start_run() as run:
            mlflow.keras.log_model(model, name="model", pip_requirements=[], **way)
    except FileNotFoundError as error:
        print(f"{name}: FileNotFoundError, {error.filename.rpartition('/')[2]}")
    else:
        print(f"{name}: stored")
    print(" ", mlflow.get_run(run.info.run_id).info.status)
PYTHON
diff "$work/seen" - <<'SEEN' || { cat "$work/said" >&2; exit 1; }
signature: stored
  FINISHED
input_example: FileNotFoundError, input_example.json
  FAILED
SEEN
echo "As seen."
