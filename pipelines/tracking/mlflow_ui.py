"""MLflow's UI on our runs: what its pages show, and their addresses.

Its table of runs opens without a metric and with every run; a view, which is a tag of the
experiment, says which columns and runs a link opens with.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from pipelines.runtime.provenance import digest
from pipelines.tracking import history, store, ui_server
from pipelines.tracking.history import Row

MODELS = "workflowType=machine_learning"  # past the page on which the UI opens
VIEW = "mlflow.sharedViewState."  # begins the tag of a view
MAX_LISTED_IDS = 100  # the filter of a view is a tag, which holds 5,000 characters
DESCRIPTIONS = {  # the experiments: one a family of claims, and what serves them
    "linear theory": "Claims about linear networks with identity shortcuts: every run is a claim "
    "or a sweep, with the bound beside what was measured. The runs below a sweep are its settings.",
    "trained networks": "Claims about trained networks, the recipes they train, and what the "
    "papers report (tag `source` is `paper`).",
    "two-layer ReLU networks": "Claims about networks with one hidden layer, and what LY report.",
    "tuning": "Learning-rate studies: the runs below each are its trials. Of a trial, "
    "`val_error_pct` is the last value, `best_val_error_pct` the best of its training.",
    "scheduled runs": "Attempts at scheduled jobs; the page of each links the runs of its command.",
    "expressivity": "Claims about the labels and functions that networks of near-identity layers "
    "can fit.",
    "benchmarks": "Ratios of times, measured side by side in one process.",
}
STANDING = (f"tags.`{store.STANDING}`",)
CLAIMS = (
    *(f"tags.`{tag}`" for tag in ("verdict", "seeds", store.RESULT, "scale")),
    "metrics.`wall_s`",
)
PROVENANCE = tuple(f"tags.`{tag}`" for tag in ("origin", "source"))
COLUMNS = {  # the table of runs shows these, by experiment, in this order
    "trained networks": (
        *CLAIMS,
        *("metrics.`test_error_pct`", "params.`schedule`", "params.`learning_rate`"),
        *PROVENANCE,
    ),
    "tuning": (
        *("params.`schedule`", "params.`learning_rate`"),
        *(f"metrics.`{key}`" for key in ("best_val_error_pct", "val_error_pct", "test_error_pct")),
        *(f"metrics.`{key}`" for key in ("gain_pct", "trials", "device_hours")),
        *("tags.`recipe`", "tags.`scale`", "tags.`best`"),
    ),
    "scheduled runs": tuple(
        f"tags.`{tag}`"
        for tag in ("state", "exit_code", "job", "due", "attempt", "failure", "command")
    ),
}
RUN_NAME = "attributes.`Run Name`"
WIDTHS = {  # columns that are not 100 wide
    **{RUN_NAME: 330, f"tags.`{store.STANDING}`": 300, "tags.`seeds`": 60},
    **{"tags.`verdict`": 130, "tags.`scale`": 70, f"tags.`{store.RESULT}`": 420},
    **{"params.`schedule`": 80, "params.`learning_rate`": 90, "metrics.`val_error_pct`": 110},
    **{"metrics.`best_val_error_pct`": 140, "tags.`exit_code`": 80, "tags.`due`": 200},
}
BY_NAME = "tags.`mlflow.runName`"
NO_SETTINGS = "tags.kind != 'setting'"  # a sweep has thousands of runs below it
VIEWS = {  # of the table: which runs, in which order, ascending or not
    "newest": (NO_SETTINGS, "attributes.start_time", False),
    "claims": (f"tags.`{store.STANDING}` != ''", f"tags.`{store.STANDING}`", True),
    "papers": (f"tags.`{store.PAPERS_ALONE}` != ''", f"tags.`{store.PAPERS_ALONE}`", True),
    "trials": ("tags.kind = 'trial'", "metrics.`val_error_pct`", True),
}
TITLES = {  # what follows an experiment's name, the view, and of which kinds a run must be there
    ", by claim": ("claims", ("claim",)),
    ", reported and not run here": ("papers", ("reference",)),
    ", best trials": ("trials", ("trial",)),
}
LEARNING = ("val_error_pct", "train_error_pct", "val_loss", "train_loss", "learning_rate")
ENDS = ("test_error_pct", "best_val_error_pct", "final_train_error_pct", "test_loss")
Group = tuple[str, str]  # "tag" or "param", and its name
CURVES, NUMBERS = "curves", "numbers"  # titles of sections of charts
TITLE_CHARS, MANY_CHARTS = 24, 4  # title of a chart of half width; so many have that, anyway


def links(server: str) -> dict[str, str]:
    """Return the addresses of every experiment's runs: newest first, by claim, best trials."""
    addresses = {}
    for experiment in store.client().search_experiments():
        name, number = experiment.name, experiment.experiment_id
        if name == "Default":
            continue
        own_name = name.removesuffix(store.OURS)
        about = DESCRIPTIONS.get(own_name) if store.is_ours(experiment) else None
        if about and store.NOTE not in experiment.tags:  # a person may have written another
            store.client().set_experiment_tag(number, store.NOTE, about)
        addresses[name] = f"{server}/{_write_table(number, name, 'newest')}"
        for title, (key, kinds) in TITLES.items():
            listed = (f"tags.kind = '{kind}'" for kind in kinds)
            if any(store.client().search_runs([number], each, max_results=1) for each in listed):
                addresses[name + title] = f"{server}/{_write_table(number, name, key)}"
    return addresses


def best_link(addresses: Mapping[str, str]) -> str:
    """Return the address to open first: of the runs beside your newest one, else of the claims.

    Empty where there is none.
    """
    experiments = [each.experiment_id for each in store.client().search_experiments()]
    yours = f"tags.{store.OWNER} IS NULL and tags.kind != 'reference'"
    for whose in (yours, "tags.kind = 'claim'"):
        found = f"{whose} and attributes.status = 'FINISHED'"
        for run in store.client().search_runs(experiments, found, max_results=1):
            name = store.client().get_experiment(run.info.experiment_id).name
            by_claim = ", by claim" * (run.data.tags["kind"] == "claim")
            return addresses[name + by_claim]
    return next(iter(addresses.values()), "")


def _write_table(number: str, name: str, key: str) -> str:
    """Keep one of VIEWS in an experiment, with its columns; return its address in the UI."""
    columns = COLUMNS.get(name.removesuffix(store.OURS), (*CLAIMS, *PROVENANCE))
    if key == "claims":
        columns = (*STANDING, *CLAIMS, *PROVENANCE)
    order = [RUN_NAME, *columns]  # a width is taken of columns in this list alone
    state = {"selectedColumns": columns, "columnOrder": order, "columnWidths": WIDTHS}
    return _write_view(number, key, _table_state(*VIEWS[key]) | state)


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


def _write_view(number: str, key: str, state: Mapping[str, Any]) -> str:
    """Keep a view in an experiment of the project, packed as the UI packs it, for tags are short.

    Return its address within the UI; of another's experiment, that of its table.
    """
    experiment = store.client().get_experiment(number)
    if not store.is_ours(experiment):
        return f"#/experiments/{number}/runs?{MODELS}"
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode(), 9)).decode()
    text = f"deflate;{packed}"
    if experiment.tags.get(VIEW + key) != text:
        store.client().set_experiment_tag(number, VIEW + key, text)
    return f"#/experiments/{number}/runs?{MODELS}&viewStateShareKey={key}"


def line_chart(curves: Sequence[str], *, log_x: bool = False, log_y: bool = True) -> dict[str, Any]:
    """Return a chart of curves over steps, the first of every run solid, the others dashed.

    The UI itself makes its title: `ratio vs bound`.
    """
    return {
        "type": "LINE",
        "runsCountToCompare": 100,
        "metricKey": curves[0],
        "selectedMetricKeys": list(curves),
        "scaleType": "log" if log_y else "linear",
        "xAxisScaleType": "log" if log_x else "linear",
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


def learning_chart(metric: str) -> dict[str, Any]:
    """Return a chart of one curve over steps, of a loss on a logarithmic axis."""
    return line_chart([metric], log_y="loss" in metric)


def bar_chart(metric: str) -> dict[str, Any]:
    """Return a chart of a number of every run."""
    return {"type": "BAR", "runsCountToCompare": 100, "metricKey": metric}


def _chart_state(
    sections: Mapping[str, Sequence[Mapping[str, Any]]], groups: Sequence[Group] = ()
) -> dict[str, Any]:
    """Return the part of a view that draws charts of all its runs, as wide as titles are long.

    A section without charts is folded. Runs that share the values of all `groups` are drawn as
    their mean, in a band of all of them.
    """
    charts = [(name, each) for name, charts in sections.items() for each in charts]
    return {
        "compareRunCharts": [
            {**each, "metricSectionId": name, "uuid": f"chart-{i}"}
            | {"deleted": False, "isGenerated": False}
            for i, (name, each) in enumerate(charts)
        ],
        "compareRunSections": [
            {"uuid": name, "name": name, "display": bool(drawn), "columns": _columns(drawn)}
            | {"isReordered": False, "deleted": False, "isGenerated": False, "cardHeight": 330}
            for name, drawn in sections.items()
        ],
        "isAccordionReordered": True,  # in this order
        "runsHiddenMode": "SHOW_ALL",  # not the first ten alone
        "groupBy": {
            "aggregateFunction": "average",
            "groupByKeys": [{"mode": mode, "groupByData": name} for mode, name in groups],
        }
        if groups
        else None,
    }


def _columns(charts: Sequence[Mapping[str, Any]]) -> int:
    titles = [" vs ".join(chart.get("selectedMetricKeys", ("",))) for chart in charts]
    return 1 if max(map(len, titles), default=0) > TITLE_CHARS and len(charts) < MANY_CHARTS else 2


def _experiment_of(run_id: str) -> str:
    return str(store.client().get_run(run_id).info.experiment_id)


def _experiments_of(run_ids: Sequence[str]) -> list[str]:
    """Return the experiments that hold these runs, in the order of the runs."""
    found = history.fetch_runs(run_ids, deleted=True)
    return list(dict.fromkeys(str(run.info.experiment_id) for run in found))


def run_link(run_id: str) -> str:
    """Return the address of a run's page within the UI."""
    return f"#/experiments/{_experiment_of(run_id)}/runs/{run_id}?{MODELS}"


def run_page(run_id: str) -> str:
    """Return the address of a run's page."""
    return f"{ui_server.address()}/{run_link(run_id)}"


def comparison_page(run_ids: Sequence[str], charts: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return the address of these charts of runs; of runs of several experiments, of a table."""
    numbers = _experiments_of(run_ids)
    if charts and len(numbers) == 1 and store.is_ours(store.client().get_experiment(numbers[0])):
        return f"{ui_server.address()}/{_runs_chart(numbers[0], run_ids, {CURVES: charts})}"
    ids, experiments = quote(json.dumps(list(run_ids))), quote(json.dumps(numbers))
    # The page reads `runs` only where it stands first.
    found = f"runs={ids}&experiments={experiments}&{MODELS}"
    return f"{ui_server.address()}/#/compare-runs?{found}"


def learning_curves(trainings: Sequence[Row]) -> str:
    """Return the address, within the UI, of learning curves, then of the numbers that they end in.

    Trainings that differ in their seed alone are one line in a band. Of trainings in several
    experiments, or in another's, the UI draws every metric: a view is of one, and written into it.
    """
    run_ids = [row.id for row in trainings][:MAX_LISTED_IDS]
    numbers = _experiments_of(run_ids)
    if len(numbers) > 1 or not store.is_ours(store.client().get_experiment(numbers[0])):
        query = f"experiments={quote(json.dumps(numbers))}&searchFilter={quote(_listed(run_ids))}"
        query = f"{query}&orderByKey={quote(BY_NAME)}&compareRunsMode=CHART"
        return f"#/compare-experiments/s?{MODELS}&{query}"
    recorded = set[str]().union(*(row.metrics for row in trainings))
    sections = {
        CURVES: [learning_chart(curve) for curve in LEARNING if curve in recorded],
        NUMBERS: [bar_chart(number) for number in ENDS if number in recorded],
    }
    return _runs_chart(numbers[0], run_ids, sections, _groups(trainings))


def _groups(trainings: Sequence[Row]) -> list[Group]:
    """Return by what trainings that differ in their seed alone are one line: a tag, or parameters.

    The first tag that tells their other settings apart, as no tag of old runs does.
    """
    settings = [frozenset(history.without_seed(row.params).items()) for row in trainings]
    for tag in (store.ARM, store.TITLE, "recipe"):
        values = [row.tags.get(tag) for row in trainings]
        pairs = set(zip(values, settings, strict=True))
        if None not in values and len(set(values)) == len(set(settings)) == len(pairs):
            return [("tag", tag)]
    differing = history.differing_keys([history.without_seed(row.params) for row in trainings])
    return [("param", key) for key in differing]


def _runs_chart(
    number: str,
    run_ids: Sequence[str],
    sections: Mapping[str, Sequence[Mapping[str, Any]]],
    groups: Sequence[Group] = (),
) -> str:
    """Return the address, within the UI, of charts of these runs of an experiment."""
    state = _chart_state(sections, groups) | _table_state(_listed(run_ids), BY_NAME, True)
    key = digest([*run_ids, state])
    return f"{_write_view(number, key, state)}&compareRunsMode=CHART"


def run_chart(
    run_id: str, sections: Mapping[str, Sequence[Mapping[str, Any]]], metrics: Iterable[str]
) -> str:
    """Return the address, within the UI, of charts of the curves of one run, in sections.

    The UI adds a chart of each of its `metrics`: below, folded, by what their names begin with.
    """
    begins = sorted({metric.partition("/")[0] for metric in metrics if "/" in metric})
    folded = dict.fromkeys([*begins, "Model metrics"], ())
    return _runs_chart(_experiment_of(run_id), [run_id], {**sections, **folded})


def _listed(run_ids: Sequence[str]) -> str:
    """Return the condition that a run is one of these."""
    listed = ", ".join(f"'{each}'" for each in run_ids)
    return f"attributes.run_id IN ({listed})"


def children_chart(
    run_id: str, charts: Sequence[Mapping[str, Any]] = (), groups: Sequence[Group] = ()
) -> str:
    """Return the address, within the UI, of the curves of a run's children, in these charts."""
    number, below = _experiment_of(run_id), f"tags.`{store.PARENT}` = '{run_id}'"
    if charts:
        state = _chart_state({CURVES: charts}, groups) | _table_state(below, BY_NAME, True)
        return f"{_write_view(number, run_id, state)}&compareRunsMode=CHART"
    query = f"searchFilter={quote(below)}&orderByKey={quote(BY_NAME)}"  # other orders are folded
    return f"#/experiments/{number}/runs?{MODELS}&{query}&compareRunsMode=CHART"
