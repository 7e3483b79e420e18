"""What is already in the database: runs, found by their tags, and their curves."""

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.tracking import store
from pipelines.tracking.store import ORIGIN, OWNER, PARENT, PROJECT, client, is_away, unavailable

LEADING = (  # tags that name a run, say what it is, or lead to others
    *(PARENT, ORIGIN, OWNER, "kind", "claim", "recipe", "study", "studies"),
    *("fingerprint", "importing", "diverged"),
)
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
JUDGED = ("verdict", "as_printed", "floor", "commit")  # of finished results
COUNTS = ("seed", "seeds", "only_seed")  # params and tags that are whole numbers, where they are


def find_lacking(status: str, tags: Mapping[str, str], params: Mapping[str, str]) -> str:
    """Return what a run lacks that is read of its kind: tags, or numbers that are none."""
    kind = tags.get("kind", "")
    if kind not in NEEDED or (kind == "setting" and "claim" not in tags):
        return ""  # nothing finds it
    judged = JUDGED if kind in RESULTS and status == "FINISHED" else ()
    lacking = [key for key in (*NEEDED[kind], *judged) if key not in tags]
    counts = [(key, each[key]) for each in (tags, params) for key in COUNTS if key in each]
    lacking += ["seed"] * (kind == "setting" and "seed" not in params)
    lacking += [f"a whole number for {key} ({n!r})" for key, n in counts if not n.isdecimal()]
    return ", ".join(lacking)


def rows(status: str | None = "FINISHED", **tags: str) -> list[Row]:
    """Return runs, not deleted ones, with that status (None: any) and these tags, newest first.

    Those of the project's evidence are left out, unless `origin` is among the tags.
    """
    return _rows(status, tags, own=OWNER not in tags)


def rows_with_evidence(status: str | None = "FINISHED", **tags: str) -> list[Row]:
    """Return the same runs and those of the project's evidence."""
    return _rows(status, tags, own=False)


def _rows(status: str | None, tags: Mapping[str, str], own: bool) -> list[Row]:
    """Read a database that database.py knows in one query a table, else ask MLflow's client."""
    database = store.sql_store()
    if database is None:
        every = [row for row in _search_rows(status, tags) if not (own and row.is_project)]
    else:
        with database.ManagedSessionMaker() as session:
            every = _select_rows(session, status, tags, own)
    whole = []
    for row in every:
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


def _search_rows(status: str | None, tags: Mapping[str, str]) -> Iterator[Row]:
    conditions = [f"attributes.status = '{status}'"] if status else []
    conditions += [f"tags.`{key}` = '{value}'" for key, value in tags.items()]
    yield from map(_row, search(" and ".join(conditions)))


def search(condition: str = "", deleted: bool = False) -> Iterator[Any]:
    """Yield MLflow's runs of all experiments under a condition, newest first, page by page."""
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


def _select_rows(session: Any, status: str | None, tags: Mapping[str, str], own: bool) -> list[Row]:
    """Select the runs first, then what belongs to these: conditions on tags read all runs' tags."""
    from mlflow.store.tracking.dbmodels.models import SqlLatestMetric, SqlParam, SqlTag

    found = _select_runs(session, _conditions(status, tags, own))
    ids = [run[0] for run in found]
    params, texts = _texts(session, SqlParam, ids), _texts(session, SqlTag, ids)
    t, metrics = SqlLatestMetric.__table__.c, defaultdict[str, dict[str, float]](dict)
    for i, key, value, is_nan in _select_of(session, ids, t.run_uuid, t.key, t.value, t.is_nan):
        metrics[i][key] = number(None if is_nan else value)
    return [Row(*run, params[run[0]], metrics[run[0]], texts[run[0]]) for run in found]


def _select_runs(
    session: Any, conditions: Iterable[Any]
) -> list[tuple[str, str, str, int, int | None]]:
    """Return id, name, status, start and end of runs, newest first."""
    from mlflow.store.tracking.dbmodels.models import SqlRun
    from sqlalchemy import select

    run = SqlRun.__table__.c
    columns = select(run.run_uuid, run.name, run.status, run.start_time, run.end_time)
    newest_first = columns.where(*conditions).order_by(run.start_time.desc(), run.run_uuid)
    return [
        (i, name, status, start, end)
        for i, name, status, start, end in session.execute(newest_first)
    ]


def outlines() -> list[Row]:
    """Return all runs, newest first, without params and metrics, to choose some of many.

    Of their tags those that name them and lead to others.
    """
    database = store.sql_store()
    if database is None:
        return list(_search_rows(None, {}))
    from mlflow.store.tracking.dbmodels.models import SqlTag
    from sqlalchemy import or_, select

    t, texts = SqlTag.__table__.c, defaultdict[str, dict[str, str]](dict)
    leading = or_(t.key.in_(LEADING), t.key.between(store.REUSED, f"{store.REUSED}~"))
    with database.ManagedSessionMaker() as session:
        for i, key, text in session.execute(select(t.run_uuid, t.key, t.value).where(leading)):
            texts[i][key] = text
        runs = _select_runs(session, _conditions(None, {}, own=False))
        return [Row(*run, {}, {}, texts[run[0]]) for run in runs]


def _conditions(status: str | None, tags: Mapping[str, str], own: bool) -> list[Any]:
    """Return the conditions on the table of runs; `own` leaves the project's evidence out."""
    from mlflow.store.tracking.dbmodels.models import SqlExperiment, SqlRun, SqlTag
    from sqlalchemy import select

    run, tag, experiment = (m.__table__.c for m in (SqlRun, SqlTag, SqlExperiment))

    def ids_tagged(key: str, value: str) -> Any:
        return select(tag.run_uuid).where(tag.key == key, tag.value == value)

    active = select(experiment.experiment_id).where(experiment.lifecycle_stage == "active")
    conditions = [run.lifecycle_stage == "active", run.experiment_id.in_(active)]
    conditions += [run.status == status] if status else []
    conditions += [run.run_uuid.in_(ids_tagged(*pair)) for pair in tags.items()]
    return conditions + ([run.run_uuid.not_in(ids_tagged(OWNER, PROJECT))] if own else [])


def _texts(session: Any, model: Any, ids: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return params or tags of these runs, by run."""
    t, texts = model.__table__.c, defaultdict[str, dict[str, str]](dict)
    for i, key, text in _select_of(session, ids, t.run_uuid, t.key, t.value):
        texts[i][key] = text
    return texts


def _select_of(
    session: Any, ids: Sequence[str], run_id: Any, *columns: Any, order: Sequence[Any] = ()
) -> Iterator[Any]:
    """Yield rows of a table that belong to these runs."""
    from sqlalchemy import select

    for start in range(0, len(ids), IDS_A_QUERY):
        page = run_id.in_(ids[start : start + IDS_A_QUERY])
        yield from session.execute(select(run_id, *columns).where(page).order_by(*order))


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
IDS_A_QUERY = 500  # run ids a query


def curves(run_ids: Sequence[str]) -> dict[str, Table]:
    """Return the histories of runs: by run id, the steps [k], ascending, and by metric values [k].

    NaN where a metric lacks a step of another.
    """
    return {run_id: table(metrics) for run_id, metrics in histories(run_ids).items()}


def histories(run_ids: Sequence[str]) -> dict[str, dict[str, dict[int, float]]]:
    """Return by run id and metric the values by step.

    Of a step that was logged twice, the value that MLflow calls latest. Infinity, and the largest
    float64 that stands for it, come as infinity.
    """
    values: dict[str, dict[str, dict[int, float]]] = {run_id: {} for run_id in run_ids}
    for run_id, metric, step, _, value in points(run_ids):
        values[run_id].setdefault(metric, {})[step] = value
    return values


def points(run_ids: Sequence[str]) -> Iterator[Point]:
    """Yield every point of runs, of each step the latest last, with infinity as it was logged."""
    if database := store.sql_store():
        yield from _select_points(database, run_ids)
        return
    for run_id in run_ids:
        for metric in store.client().get_run(run_id).data.metrics:
            for point in store.client().get_metric_history(run_id, metric):
                yield run_id, metric, point.step, point.timestamp, number(point.value)


def measuring_seconds(rows: Iterable[Row]) -> float:
    """Return the seconds in which runs were measured; those at the same time share theirs."""
    seconds, until_ms = 0.0, 0
    for row in sorted(rows, key=lambda row: row.start_ms):
        end_ms = row.end_ms or row.start_ms
        seconds += max(0, end_ms - max(row.start_ms, until_ms)) / 1000
        until_ms = max(end_ms, until_ms)
    return seconds


def _select_points(database: Any, run_ids: Sequence[str]) -> Iterator[Point]:
    """Yield every point from the tables."""
    from mlflow.store.tracking.dbmodels.models import SqlMetric

    t = SqlMetric.__table__.c
    columns = (t.run_uuid, t.key, t.step, t.timestamp, t.value, t.is_nan)
    with database.ManagedSessionMaker() as session:
        found = _select_of(session, run_ids, *columns, order=(t.timestamp, t.value))
        for *place, value, is_nan in found:
            yield *place, number(None if is_nan else value)


def table(metrics: Mapping[str, Mapping[int, float]]) -> Table:
    """Return the steps [k], ascending, and the values [k] of metrics given by step."""
    steps = sorted(set[int]().union(*metrics.values()))
    values = {
        m: np.array([metrics[m].get(step, np.nan) for step in steps]) for m in sorted(metrics)
    }
    return np.array(steps, np.int64), values
