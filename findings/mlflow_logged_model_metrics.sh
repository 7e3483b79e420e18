#!/usr/bin/env bash
# A logged model of MLflow is found by any value that its metric ever had, and NaN is kept as 0.
#
# One would expect `search_logged_models` to understand `metrics.val_error < 0.15` as `search_runs` does:
# by the last value, and never by NaN.
# What happens: a model is found if one step of its metric satisfies the filter, so that one model is found
# by `< 0.15` and by `> 0.85`. NaN, the last value of a network that diverged, is stored as 0 and read back
# as 0.0: the model is found by `< 0.15`, and `order_by` puts it first among errors. The run that logged the
# same numbers in the same call has NaN.
# Source: mlflow/store/tracking/sqlalchemy_store.py, `_apply_filter_string_datasets_search_logged_models`,
# which looks through all rows of a metric, and dbmodels/models.py: SqlMetric has a column `is_nan`,
# SqlLoggedModelMetric has none.
# Consequence for a user: the "best" model can be one that diverged, or that was good at a step that is not
# the stored one. What works: log one last number under a name of its own, and none that is NaN; or search
# runs.
#
# Seen with MLflow 3.17.2 on SQLite, Python 3.11, Linux.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet mlflow==3.17.2 >&2
cd "$work"
MLFLOW_DISABLE_TELEMETRY=true MLFLOW_TRACKING_URI="sqlite:///$work/mlflow.db" \
  "$work/venv/bin/python" - 2>"$work/said" <<'PYTHON' | tee "$work/seen"
import mlflow

curves = {
    "falls": [0.9, 0.5, 0.12],
    "rises": [0.9, 0.1, 0.8],
    "diverges": [0.9, 0.5, float("nan")],
}
for name, values in curves.items():
    with mlflow.start_run(run_name=name):
        model_id = mlflow.initialize_logged_model(name=name).model_id
        for step, value in enumerate(values):
            mlflow.log_metric("val_error", value, step=step, model_id=model_id)
        mlflow.finalize_logged_model(model_id, "READY")


def runs(text="", by="name"):
    found = mlflow.search_runs(filter_string=text, order_by=[by], output_format="list")
    return [run.info.run_name for run in found]


def models(text="", by="name"):
    order = [{"field_name": by, "ascending": True}]
    found = mlflow.search_logged_models(
        filter_string=text, order_by=order, output_format="list"
    )
    return [model.name for model in found]


for text in ("metrics.val_error < 0.15", "metrics.val_error > 0.85"):
    print(f"{text}: runs {runs(text, 'run_name')}, models {models(text)}")
by = "metrics.val_error"
print(f"least first: runs {runs(by=by)}, models {models(by=by)}")
[model] = mlflow.search_logged_models(filter_string="name = 'diverges'", output_format="list")
last = mlflow.get_run(model.source_run_id).data.metrics["val_error"]
print(f"diverges, last value: run {last}, model {model.metrics[-1].value}")
PYTHON
diff "$work/seen" - <<'SEEN' || { cat "$work/said" >&2; exit 1; }
metrics.val_error < 0.15: runs ['falls'], models ['diverges', 'falls', 'rises']
metrics.val_error > 0.85: runs [], models ['diverges', 'falls', 'rises']
least first: runs ['falls', 'rises', 'diverges'], models ['diverges', 'falls', 'rises']
diverges, last value: run nan, model 0.0
SEEN
echo "As seen."
