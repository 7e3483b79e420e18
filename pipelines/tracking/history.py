"""Recorded runs, found by their tags, and their curves."""

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.tracking.store import (
    ORIGIN,
    OWNER,
    PARENT,
    PROJECT,
    REUSED,
    TITLE,
    client,
    is_away,
    is_unmade,
    read_links,
    unavailable,
)

PAGE = 100  # run ids a request
LARGEST_FLOAT = sys.float_info.max  # what MLflow keeps for infinity
INFINITIES = {LARGEST_FLOAT: math.inf, -LARGEST_FLOAT: -math.inf}


def number(value: float | None) -> float:
    """Return a recorded number as it was logged: NaN for null, infinity for the largest one."""
    return math.nan if value is None else INFINITIES.get(value, value)


@dataclass(frozen=True)
class Row:
    """A run as it stands in the database."""

    id: str
    name: str
    status: str
    start_ms: int
    end_ms: int | None
    params: dict[str, str]
    metrics: dict[str, float]
    tags: dict[str, str]

    @property
    def origin(self) -> str:
        """Return its id where it was measured: an imported run may have another one here."""
        return self.tags.get(ORIGIN, self.id)

    @property
    def is_project(self) -> bool:
        """Return whether it is part of the evidence that the project ships."""
        return self.tags.get(OWNER) == PROJECT


RESULTS = ("claim", "sweep")
NEEDED = {  # tags that are read of every run of these kinds
    **dict.fromkeys(RESULTS, ("claim", "scale", "seeds", "source", "fingerprint", "code")),
    **dict.fromkeys(("training", "search"), ()),
    "setting": ("claim", "fingerprint", "code"),
    "seeds": ("recipe", "fingerprint"),
    "study": ("study",),
}
JUDGED = ("verdict", "as_printed", "floor", "commit")  # tags of finished results
COUNTS = ("seed", "seeds", "only_seed")  # params and tags that are whole numbers, where they are


def find_lacking(status: str, tags: Mapping[str, str], params: Mapping[str, str]) -> str:
    """Return what a run lacks that is read of its kind: tags, or numbers that are none."""
    kind = tags.get("kind", "")
    if kind not in NEEDED or (kind == "setting" and "claim" not in tags):
        return ""  # nothing finds it
    finished = status == "FINISHED"  # a kill leaves a setting without params
    judged = JUDGED if kind in RESULTS and finished else ()
    lacking = [key for key in (*NEEDED[kind], *judged) if key not in tags]
    counts = [(key, each[key]) for each in (tags, params) for key in COUNTS if key in each]
    lacking += ["seed"] * (finished and kind == "setting" and "seed" not in params)
    lacking += [f"a whole number for {key} ({n!r})" for key, n in counts if not n.isdecimal()]
    return ", ".join(lacking)


def rows(status: str | None = "FINISHED", **tags: str) -> list[Row]:
    """Return runs, not deleted ones, with that status (None: any) and these tags, newest first.

    Those of the project's evidence are left out, unless `origin` is among the tags.
    """
    every = rows_with_evidence(status, **tags)
    return every if OWNER in tags else [row for row in every if not row.is_project]


def rows_with_evidence(status: str | None = "FINISHED", **tags: str) -> list[Row]:
    """Return the same runs and those of the project's evidence."""
    conditions = [f"attributes.status = '{status}'"] if status else []
    conditions += [f"tags.`{key}` = '{value}'" for key, value in tags.items()]
    whole = []
    for row in map(_row, search(" and ".join(conditions))):
        lacking = find_lacking(row.status, row.tags, row.params) if "kind" in tags else ""
        whole += [] if lacking else [row]
        if lacking and row.id not in _said:
            _said.add(row.id)
            print(
                f"Run {row.name} ({row.id}) is left out: of the kind {row.tags['kind']}, it must "
                f"have {lacking}. Somebody edited it, or another version wrote it: set that again.",
                file=sys.stderr,
            )
    return whole


def search(condition: str = "", deleted: bool = False) -> Iterator[Any]:
    """Yield MLflow's runs of all experiments under a condition, newest first, page by page."""
    if is_unmade():
        return iter(())
    client()  # first of all: it sets MLflow up, and silences what it warns of in a notebook
    from mlflow.entities import ViewType

    view = ViewType.ALL if deleted else ViewType.ACTIVE_ONLY
    experiments = [e.experiment_id for e in client().search_experiments(view)]
    newest = ["attributes.start_time DESC"]
    return _all_pages(
        lambda token: client().search_runs(experiments, condition, view, 1_000, newest, token)
    )


def logged_models() -> Iterator[Any]:
    """Yield MLflow's logged models of all experiments, oldest first."""
    experiments = [e.experiment_id for e in client().search_experiments()]
    oldest = [{"field_name": "creation_time", "ascending": True}]
    return _all_pages(
        lambda token: client().search_logged_models(experiments, order_by=oldest, page_token=token)
    )


def _all_pages(fetch: Callable[[str | None], Any]) -> Iterator[Any]:
    """Yield what is on the pages that `fetch` returns for the token of the page before."""
    token = None
    while token != "":
        page = fetch(token)
        yield from page
        token = page.token or ""


def fetch_runs(run_ids: Sequence[str], deleted: bool = False) -> Iterator[Any]:
    """Yield MLflow's runs with these ids, in their order; those that are gone are left out."""
    for start in range(0, len(run_ids), PAGE):
        page_ids = run_ids[start : start + PAGE]
        condition = f"attributes.run_id IN ({', '.join(map(repr, page_ids))})"
        runs = {run.info.run_id: run for run in search(condition, deleted)}
        yield from (runs[run_id] for run_id in page_ids if run_id in runs)


def outlines() -> list[Row]:
    """Return all runs, not deleted ones, newest first."""
    return list(map(_row, search()))


def find_named(name: str) -> list[Row]:
    """Return the runs of that name or title, and those whose id begins so, newest first.

    The store is asked for them alone: it may hold many thousands.
    """
    quote = '"' if "'" in name else "'"
    if quote in name:
        return [each for each in outlines() if name in (each.name, each.tags.get(TITLE))]
    conditions = [
        f"{key} = {quote}{name}{quote}" for key in ("attributes.run_name", f"tags.{TITLE}")
    ]
    if re.fullmatch("[0-9a-f]+", name):
        conditions += [f"{key} LIKE '{name}%'" for key in ("attributes.run_id", f"tags.{ORIGIN}")]
    found = {run.info.run_id: _row(run) for each in conditions for run in search(each)}
    return sorted(found.values(), key=lambda each: each.start_ms, reverse=True)


def row(run_id: str) -> Row:
    """Return the run of that id."""
    return _row(client().get_run(run_id))


def find(run_id: str) -> Row | None:
    """Return the run of that id; None if this store has no such run."""
    try:
        return row(run_id)
    except unavailable() as error:
        if is_away(error):
            raise
        return None


def is_deleted(run_id: str) -> bool:
    """Return whether the run of that id was deleted, which `find` does not tell."""
    return bool(client().get_run(run_id).info.lifecycle_stage == "deleted")


def _row(run: Any) -> Row:
    data, info = run.data, run.info
    return Row(
        info.run_id,
        info.run_name,
        info.status,
        info.start_time,
        info.end_time,
        dict(data.params),
        {key: number(value) for key, value in data.metrics.items()},
        dict(data.tags),
    )


def without_seed(params: Mapping[str, str]) -> dict[str, str]:
    """Return what trainings that differ in their seed alone have in common of their params."""
    return {key: value for key, value in params.items() if key not in ("seed", "seeds")}


def differing_keys(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys whose values are not the same in all settings, or which some lack."""
    keys = dict.fromkeys(key for each in settings for key in each)
    return [key for key in keys if len({repr(each.get(key)) for each in settings}) > 1]


Table = tuple[NDArray[np.int64], dict[str, NDArray[np.float64]]]
Point = tuple[str, str, int, int, float]  # run, metric, step, milliseconds since 1970, value
_said = set[str]()  # ids of runs of which this process has said what they lack


def curves(run_ids: Sequence[str]) -> dict[str, Table]:
    """Return the histories of runs: by run id, the steps [k], ascending, and by metric values [k].

    NaN where a metric lacks a step of another.
    """
    return {run_id: table(metrics) for run_id, metrics in histories(run_ids).items()}


def histories(run_ids: Sequence[str], prefix: str = "") -> dict[str, dict[str, dict[int, float]]]:
    """Return by run id and metric, of those whose names begin so, the values by step.

    Of a step that was logged twice, the value that MLflow calls latest. Infinity, and the largest
    float64 that stands for it, come as infinity.
    """
    values: dict[str, dict[str, dict[int, float]]] = {run_id: {} for run_id in run_ids}
    for run_id, metric, step, _, value in points(run_ids, prefix):
        values[run_id].setdefault(metric, {})[step] = value
    return values


def points(run_ids: Sequence[str], prefix: str = "") -> Iterator[Point]:
    """Yield every point of runs, of each step the latest last, with infinity as it was logged."""
    for run_id in run_ids:
        for metric in client().get_run(run_id).data.metrics:
            if metric.startswith(prefix):
                history = client().get_metric_history(run_id, metric)
                for point in sorted(history, key=_latest_last):
                    yield run_id, metric, point.step, point.timestamp, number(point.value)


def _latest_last(point: Any) -> tuple[int, float]:
    """Return what MLflow compares two points of a step by; NaN is kept as 0."""
    return point.timestamp, 0.0 if math.isnan(point.value) else point.value


def table(metrics: Mapping[str, Mapping[int, float]]) -> Table:
    """Return the steps [k], ascending, and the values [k] of metrics given by step."""
    steps = sorted(set[int]().union(*metrics.values()))
    values = {
        m: np.array([metrics[m].get(step, np.nan) for step in steps]) for m in sorted(metrics)
    }
    return np.array(steps, np.int64), values


def trainings_of(run_id: str, kinds: Sequence[str] = ("training",)) -> list[Row]:
    """Return the trainings below a claim's run, and those of earlier runs that it names."""
    below = [row for k in kinds for row in rows_with_evidence(None, kind=k, **{PARENT: run_id})]
    run = find(run_id)
    reused = read_links(run.tags, REUSED) if run else []
    others = map(_row, fetch_runs(reused, deleted=True))
    return [*below, *(row for row in others if row.tags.get("kind") in kinds)]
