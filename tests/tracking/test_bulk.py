"""Finished runs: what is written in bulk must be read back as if MLflow's client had written it."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy

from pipelines.runtime import heartbeat, provenance
from pipelines.tracking import bulk, history, recovery, store, tracked_run
from pipelines.tracking.bulk import FinishedRun
from tests.conftest import exit_code

NAN, INF, LARGEST = float("nan"), float("inf"), 1.7976931348623157e308
LIVES = {
    heartbeat.PROCESS,
    heartbeat.MACHINE,
    heartbeat.HEARTBEAT,
}  # of a run written while its process lives
DIFFERING = {store.PARENT, *LIVES}
TABLES = ("runs", "tags", "params", "metrics", "latest_metrics")


def make_run(name: str, steps: Any, curves: Any, **changes: Any) -> FinishedRun:
    given = {"params": {"d": 4}, "tags": {"fingerprint": name}, "start_ms": 5_000, "end_ms": 9_000}
    return FinishedRun(name=name, steps=steps, curves=curves, **{**given, **changes})


RUNS = [
    make_run("plain", range(4), {"loss": [3, 2, 1.5, 0.1], "bound": np.float32([1, 2, 3, 0.1])}),
    make_run("not a number", [1, 2, 3], {"loss": [0.5, NAN, 0.25], "ends in": [1, 2, NAN]}),
    make_run("infinite", [1, 2], {"loss": [1, INF], "down": [-INF, -INF], "big": [LARGEST, 0]}),
    make_run("repeated", [2, 2, 2, 1, 1], {"loss": [7, 9, 8, 5, 5], "nan": [NAN, NAN, -2, -1, 0]}),
    make_run("unsorted", [3, -1, 2], {"loss": [30, -10, 20], "on": np.array([True, False, True])}),
    make_run("long", np.arange(1_500), {"loss": np.linspace(0, 1, 1_500)}),  # more than a request
    make_run("no curve", [], {}, params={}, tags={}),
    make_run("empty curve", [], {"loss": []}),
    make_run("texts", [0], {"a/b": [1]}, params={"p": "x" * 6_001}, tags={"t": "x" * 8_001}),
    make_run(
        "many", [0], {f"m{i}": [i] for i in range(30)}, params={f"p{i}": i for i in range(150)}
    ),
    make_run("own", [0], {"loss": [1]}, tags={"kind": "other", "mlflow.runName": "another"}),
]


@pytest.fixture(params=["sqlite", "postgresql"])
def database(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """A store in force: the tests that use it must hold in both."""
    kind: str = request.param
    if kind == "sqlite":
        request.getfixturevalue("home")
    else:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", request.getfixturevalue("postgresql"))
        monkeypatch.setattr(store, "home", lambda: tmp_path)
        (tmp_path / "live").mkdir()
    return kind


def parent(name: str = "sweep") -> str:
    with tracked_run.track(name, experiment="test", kind="sweep") as run:
        pass
    return run.id


def record(runs: list[FinishedRun], parent_id: str | None = None) -> list[str]:
    return bulk.write("test", runs, parent_id)


@contextmanager
def unknown_tables() -> Iterator[None]:
    """The module knows other tables than those of the database: it asks MLflow's client."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "REVISION", "another")
        yield


@unknown_tables()
def by_client(runs: list[FinishedRun], parent_id: str | None = None) -> list[str]:
    return record(runs, parent_id)


@unknown_tables()
def curves_by_client(run_ids: list[str]) -> dict[str, history.Table]:
    return history.curves(run_ids)


def points(run_id: str, metric: str) -> list[Any]:
    found = store.client().get_metric_history(run_id, metric)
    return [(m.step, repr(m.value), m.timestamp) for m in found]


def picture(run_id: str) -> dict[str, Any]:
    """All that the public client says of a run, but its id; NaN made equal to itself."""
    run = store.client().get_run(run_id)
    return {
        "info": {key: str(value).replace(run_id, "ID") for key, value in run.info},
        "params": run.data.params,
        "tags": {k: v for k, v in run.data.tags.items() if k not in DIFFERING},
        "latest": {key: repr(value) for key, value in run.data.metrics.items()},
        "histories": {key: points(run_id, key) for key in run.data.metrics},
    }


def stored(run_id: str) -> dict[str, list[str]]:
    """The rows of a run in every table, but its id and its parent's."""
    found = {}
    with store.sql_store().ManagedSessionMaker() as session:
        for table in TABLES:
            rows = session.execute(
                sqlalchemy.text(f"SELECT * FROM {table} WHERE run_uuid = :id"),  # noqa: S608
                {"id": run_id},
            ).mappings()
            own = [row for row in rows if row.get("key") not in DIFFERING]
            found[table] = sorted(str(dict(row)).replace(run_id, "ID") for row in own)
    return found


def test_bulk_runs_are_read_back_as_the_client_s(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store._warn_unknown_revision.cache_clear()
    fast, slow = record(RUNS, parent("fast")), by_client(RUNS, parent("slow"))
    assert len(set(fast + slow)) == 2 * len(RUNS)
    for run, a, b in zip(RUNS, fast, slow, strict=True):
        assert (run.name, picture(a)) == (run.name, picture(b))
        assert (run.name, stored(a)) == (run.name, stored(b))
    np.testing.assert_equal(
        list(history.curves(fast).values()), list(curves_by_client(slow).values())
    )
    assert capsys.readouterr().err.count("runs are written one by one") == 1


def test_search_finds_and_orders_bulk_runs_as_the_client_s(database: str) -> None:
    runs = [
        make_run(f"r{i}", [1, 2], {"loss": [0, loss]}, params={"d": i % 2})
        for i, loss in enumerate([3.0, 1.0, NAN, -INF, 2.0, INF])
    ]
    parents = {record: parent("fast"), by_client: parent("slow")}
    for write, parent_id in parents.items():
        write(runs, parent_id)

    def names(parent_id: str, condition: str, order: str) -> list[str]:
        nested = f"tags.`mlflow.parentRunId` = '{parent_id}'"
        experiment = store.experiment(store.uri(), "test")
        found = store.client().search_runs([experiment], f"{nested}{condition}", order_by=[order])
        return [run.info.run_name for run in found]

    fast, slow = parents.values()
    assert names(fast, " and metrics.loss > 0", "metrics.loss ASC") == ["r1", "r4", "r0", "r5"]
    assert names(fast, " and params.d = '1'", "metrics.loss DESC") == ["r5", "r1", "r3"]
    for condition in ("", " and tags.kind = 'setting'", " and attributes.end_time = 9000"):
        for order in ("metrics.loss ASC", "metrics.loss DESC", "attributes.run_name DESC"):
            assert len(names(fast, condition, order)) == len(runs)
            assert names(fast, condition, order) == names(slow, condition, order)


def test_the_client_goes_on_with_a_bulk_run(database: str) -> None:
    [run_id] = record([make_run("r", [1, 5], {"loss": [2.0, 1.0]})], parent())
    client = store.client()
    client.log_metric(run_id, "loss", 9.0, step=3, timestamp=10_000)
    assert client.get_run(run_id).data.metrics == {"loss": 1.0}  # step 5 is later
    client.log_metric(run_id, "loss", 0.5, step=6)
    assert client.get_run(run_id).data.metrics == {"loss": 0.5}
    assert sorted(m.step for m in client.get_metric_history(run_id, "loss")) == [1, 3, 5, 6]
    client.log_param(run_id, "late", 1)
    client.set_tag(run_id, "fingerprint", "changed")
    assert history.row(run_id).tags["fingerprint"] == "changed"
    client.delete_run(run_id)
    assert not history.rows(fingerprint="changed")
    client.restore_run(run_id)
    assert [row.id for row in history.rows(fingerprint="changed")] == [run_id]


def test_a_bulk_run_is_a_child_like_any_other(home: Path) -> None:
    with tracked_run.track("sweep", experiment="test", kind="sweep") as sweep:
        tags = {"fingerprint": "r"}
        with tracked_run.track(
            "r", experiment="test", kind="setting", params={"d": 4}, tags=tags, parent=sweep
        ) as child:
            child.log({"loss": 1.0}, 3)
        [run_id] = record([make_run("r", [3], {"loss": [1.0]}, tags=tags)], sweep.id)
    fast, slow = history.row(run_id), history.row(child.id)
    assert (fast.name, fast.status, fast.params) == (slow.name, slow.status, slow.params)
    shared = {key: value for key, value in slow.tags.items() if key not in LIVES}
    assert (fast.metrics, fast.tags) == (slow.metrics, shared)
    [top] = record([make_run("top", [1], {"loss": [1]})])
    assert history.row(top).tags == provenance.tags() | {
        "kind": "setting", "fingerprint": "top", "mlflow.runName": "top",
    }  # fmt: skip


def test_ids_sort_by_time(home: Path) -> None:
    runs = [make_run("r", [1], {"loss": [1]})] * 50
    ids = record(runs) + record(runs)
    assert ids == sorted(set(ids))
    assert all(re.fullmatch("[0-9a-f]{32}", run_id) for run_id in ids)


def test_rows_keep_their_id_status_and_dates(database: str) -> None:
    curve = [(2, 20, 1.0, False), (2, 30, 0.5, False), (2, 30, 0.5, False), (1, 40, 0.0, True)]
    run = bulk.RunRecord("f" * 32, "r", "FAILED", 5, None, {"d": "4"}, {"a": "b"}, {"loss": curve})
    bulk.insert(store.sql_store(), store.experiment(store.uri(), "test"), [run])
    found = store.client().get_run(run.run_id)
    assert (found.info.status, found.info.start_time, found.info.end_time) == ("FAILED", 5, None)
    assert (found.info.user_id, found.data.params, found.data.tags) == (
        "unknown",
        {"d": "4"},
        {"a": "b"},
    )
    assert found.data.metrics == {"loss": 0.5}  # of the greatest step, the latest
    assert points(run.run_id, "loss") == [(2, "1.0", 20), (2, "0.5", 30), (1, "nan", 40)]


def test_nothing_is_recorded_of_nothing(home: Path) -> None:
    assert record([], parent()) == []
    assert history.curves([]) == {}


def test_curves_come_back_as_they_were_given(home: Path) -> None:
    given = {"a": [1.0, NAN, INF], "b": [-INF, 5e-324, 0.1 + 0.2]}
    runs = [make_run(f"r{i}", [4, 8, 16], given) for i in range(history.IDS_A_QUERY + 1)]
    found = history.curves(record(runs))
    assert len(found) == len(runs)
    for steps, curves in found.values():
        np.testing.assert_array_equal(steps, [4, 8, 16])
        np.testing.assert_equal(curves, {key: np.array(values) for key, values in given.items()})
        assert steps.dtype == np.int64


def test_curves_of_a_tracked_run_share_their_steps(home: Path) -> None:
    with tracked_run.track("r", experiment="test", kind="training") as run:
        run.log({"b": 1.0}, 2)
        run.log({"a": 3.0, "b": 2.0}, 1)
    client = store.client()
    client.log_metric(run.id, "a", 9.0, step=5, timestamp=2_000)
    client.log_metric(run.id, "a", 4.0, step=5, timestamp=3_000)  # the latest, not the greatest
    for found in (history.curves([run.id]), curves_by_client([run.id])):
        np.testing.assert_array_equal(found[run.id][0], [1, 2, 5])
        np.testing.assert_equal(found[run.id][1], {"a": [3, NAN, 4], "b": [2, 1, NAN]})


@pytest.mark.parametrize("write", [record, by_client])
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"curves": {"loss (train)": [1]}}, "Names may only contain"),
        ({"curves": {"x" * 251: [1]}}, "maximum length of 250"),
        ({"params": {"../d": 1}}, "must not resolve to other names"),
        ({"tags": {"a,b": "1"}}, "Names may only contain"),
        ({"curves": {"loss": [1, 2]}}, r"one value a step. Received: loss of shape \(2,\) over 1"),
        ({"curves": {"loss": 1.0}}, r"loss of shape \(\)"),
        ({"steps": [0.5]}, "float"),
    ],
)
def test_what_mlflow_refuses_is_refused_before_anything_is_written(
    home: Path, write: Any, wrong: dict[str, Any], says: str
) -> None:
    good = make_run("good", [0], {"loss": [1]})
    bad = make_run("bad", **{"steps": [0], "curves": {}, **wrong})
    with pytest.raises((store.unavailable(), ValueError, TypeError), match=says):
        write([good, bad])
    assert history.rows(None) == []


def test_a_full_disk_leaves_nothing(home: Path) -> None:
    parent_id = parent()
    runs = [make_run(f"r{i}", range(100), {"loss": range(100)}) for i in range(50)]
    limit = 50 + (home / "mlflow.db").stat().st_size // 4_096

    def limited(connection: Any, *_: Any) -> None:
        connection.execute(f"PRAGMA max_page_count = {limit}")

    engine = store.sql_store().engine
    sqlalchemy.event.listen(engine, "checkout", limited)
    with pytest.raises(store.unavailable(), match="full"):
        record(runs, parent_id)
    assert [row.id for row in history.rows(None)] == [parent_id]
    limit = 1_000_000
    written = record(runs, parent_id)
    assert {row.id for row in history.rows(None)} == {parent_id, *written}


def kill_while_writing(write: Any, runs: list[FinishedRun]) -> None:
    """What a process does that dies before its last insertion."""

    def kill(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("INSERT INTO latest_metrics"):
            os.kill(os.getpid(), signal.SIGKILL)

    sqlalchemy.event.listen(store.sql_store().engine, "after_cursor_execute", kill)
    write(runs)


@pytest.mark.parametrize(("write", "left"), [(record, 0), (by_client, 1)])
def test_kill_9_leaves_none_or_a_run_that_is_settled(home: Path, write: Any, left: int) -> None:
    record([make_run("before", [0], {"loss": [1]})])
    runs = [make_run(name, [1, 2], {"loss": [1, 2]}) for name in "ab"]
    assert exit_code(kill_while_writing, write, runs) == -signal.SIGKILL
    assert [row.name for row in history.rows("FINISHED")] == ["before"]
    settled = recovery.deliver_journals()
    here = [row.id for row in history.rows("FINISHED") if row.name != "before"]
    assert here == settled  # its journal said that it had ended
    assert [points(i, "loss") for i in settled] == [[(1, "1.0", 9_000), (2, "2.0", 9_000)]] * left
    assert len(history.rows(None)) == 1 + left
    assert len(write(runs)) == 2


def test_analyze_counts_the_rows_of_sqlite(database: str) -> None:
    record(RUNS)
    bulk.analyze()
    if database == "sqlite":
        with store.sql_store().ManagedSessionMaker() as session:
            counted = session.execute(sqlalchemy.text("SELECT tbl FROM sqlite_stat1")).scalars()
            assert set(TABLES) <= set(counted)
