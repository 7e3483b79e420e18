"""MLflow's UI on our runs: what its pages show, and their addresses.

Its table of runs opens without a metric and with every run; a view, which is a tag of the
experiment, says which columns and runs a link opens with.
"""

import base64
import json
import os
import re
import sys
import zlib
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from pipelines.tracking import store

MODELS = "workflowType=machine_learning"  # past the page on which the UI opens
VIEW = "mlflow.sharedViewState."  # begins the tag of a view
DESCRIPTIONS = {  # the experiments: one a family of claims, and what serves them
    "linear theory": "Claims about linear networks with identity shortcuts: every run is a claim "
    "or a sweep, and the runs below it are its settings, with the bound beside what was measured.",
    "trained networks": "Claims about trained networks, the recipes they train, and what the "
    "papers report (tag `source` is `paper`). Runs over seeds have means, sd/, n/, ci_low/, "
    "ci_high/.",
    "two-layer ReLU networks": "What LY report of two-layer networks (tag `source` is `paper`).",
    "tuning": "Learning-rate studies: the runs below each are its trials.",
    "benchmarks": "Ratios of times, measured side by side in one process.",
}
COLUMNS = {  # of the table of runs, by experiment
    "linear theory": ("ratio", "sd/ratio", "n/ratio", "wall_s"),
    "trained networks": ("test_error_pct", "sd/test_error_pct", "n/test_error_pct", "wall_s"),
    "tuning": ("best_val_error_pct", "gain_pct", "test_error_pct", "device_hours", "val_error_pct"),
}
TAGS = ("verdict", "scale", "source", "origin")
NO_SETTINGS = "tags.kind != 'setting'"  # a sweep has thousands of runs below it
VIEWS = {  # of the table of runs: which, in which order, ascending or not
    "newest": (NO_SETTINGS, "attributes.start_time", False),
    "claims": (f"{NO_SETTINGS} and tags.kind != 'training'", "tags.`claim`", True),
}


def address(host: str = "127.0.0.1", port: int = 5000) -> str:
    """Return where the UI is: at the tracking server, else where `serve` puts it."""
    if not store.is_server():
        return f"http://{host}:{port}"
    return re.sub("//[^/@]*@", "//", store.uri())  # links are passed on: no name, no password


def links(server: str) -> dict[str, str]:
    """Return the addresses of every experiment's runs, newest first, and by claim."""
    addresses = {}
    for experiment in store.client().search_experiments():
        name, number = experiment.name, experiment.experiment_id
        if name == "Default":
            continue
        about = DESCRIPTIONS.get(name)
        if about and store.NOTE not in experiment.tags:
            store.client().set_experiment_tag(number, store.NOTE, about)
        page = f"{server}/#/experiments/{number}/runs?{MODELS}&viewStateShareKey="
        addresses[name] = f"{page}{_write_view(number, name, 'newest')}"
        kinds = [f"tags.kind = '{kind}'" for kind in ("reference", "claim")]
        if any(store.client().search_runs([number], kind, max_results=1) for kind in kinds):
            addresses[f"{name}, by claim"] = f"{page}{_write_view(number, name, 'claims')}"
    return addresses


def _write_view(number: str, name: str, key: str) -> str:
    """Keep one of VIEWS in an experiment, with its columns; its key."""
    metrics = [f"metrics.`{metric}`" for metric in COLUMNS.get(name, ())]
    columns = [*metrics, *(f"tags.`{tag}`" for tag in TAGS)]
    return _write_state(number, key, _table_state(*VIEWS[key]) | {"selectedColumns": columns})


def _table_state(runs: str, order: str, ascending: bool) -> dict[str, Any]:
    """Return which runs a view shows, and in which order."""
    return {
        "searchFilter": runs,
        "orderByKey": order,
        "orderByAsc": ascending,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
    }


def _write_state(number: str, key: str, state: Mapping[str, Any]) -> str:
    """Keep a view in its experiment, packed as the UI packs it, for tags are short; its key."""
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    text, tags = f"deflate;{packed}", store.client().get_experiment(number).tags
    if tags.get(VIEW + key) != text:
        store.client().set_experiment_tag(number, VIEW + key, text)
    return key


def _line_chart(number: int, curves: Sequence[str]) -> dict[str, Any]:
    """Return a chart of curves over steps, the first of every run solid, the others dashed."""
    return {
        "type": "LINE",
        "uuid": f"chart-{number}",
        "metricSectionId": "claim",
        "deleted": False,
        "isGenerated": False,
        "displayName": ", ".join(curves),
        "runsCountToCompare": 10,
        "metricKey": curves[0],
        "selectedMetricKeys": list(curves),
        "scaleType": "log",
        "xAxisScaleType": "linear",
        "xAxisKey": "step",
        "selectedXAxisMetricKey": "",
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        "lineSmoothness": 0,
        "range": {},
        "ignoreOutliers": False,
        "useGlobalXaxisKey": True,
        "useGlobalLineSmoothing": True,
    }


def run_page(run_id: str) -> str:
    """Return the address of a run's page."""
    return f"{address()}/#/runs/{run_id}"


def comparison_page(run_ids: Sequence[str]) -> str:
    """Return the address of the page that compares runs, of one experiment or of several."""
    runs = [store.client().get_run(run_id).info for run_id in run_ids]
    ids = json.dumps([run.run_id for run in runs])
    experiments = json.dumps(list(dict.fromkeys(run.experiment_id for run in runs)))
    return f"{address()}/#/compare-runs?runs={quote(ids)}&experiments={quote(experiments)}"


def children_chart(run_id: str, charts: Sequence[Sequence[str]] = ()) -> str:
    """Return the address, within the UI, of the curves of a run's children, in these charts."""
    number = store.client().get_run(run_id).info.experiment_id
    below, by_name = f"tags.`{store.PARENT}` = '{run_id}'", "tags.`mlflow.runName`"
    query = f"searchFilter={quote(below)}&orderByKey={quote(by_name)}"  # other orders are folded
    if charts:
        section = {"uuid": "claim", "name": "curves", "display": True, "isReordered": False}
        cards = [_line_chart(i, curves) for i, curves in enumerate(charts)]
        state = {"compareRunCharts": cards, "compareRunSections": [section]}
        state |= _table_state(below, by_name, True)
        query = f"viewStateShareKey={_write_state(number, run_id, state)}"
    return f"#/experiments/{number}/runs?{MODELS}&{query}&compareRunsMode=CHART"


def serve(host: str, port: int) -> None:
    """Become the MLflow server of the present store, which must be a database; does not return."""
    os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"
    arguments = ["server", "--backend-store-uri", store.uri(), "--host", host, "--port", str(port)]
    if store.uri().startswith(store.SQLITE):
        arguments += ["--default-artifact-root", (store.home() / "artifacts").as_uri()]
    os.execv(sys.executable, [sys.executable, "-m", "mlflow", *arguments, "--workers", "1"])
