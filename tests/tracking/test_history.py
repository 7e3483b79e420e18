"""What is read from the tables is what MLflow's client says."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.tracking import history, store, tracked_run


@pytest.fixture(params=["sqlite", "postgresql"])
def filled(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """A store with odd numbers, a run that failed, and what was deleted."""
    if request.param == "sqlite":
        request.getfixturevalue("home")
    else:
        monkeypatch.setenv("MLRUNS_HOME", str(tmp_path))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", request.getfixturevalue("postgresql"))
    for number, kind in enumerate(("mine", "setting", "mine")):
        with tracked_run.track(
            f"run {number}", experiment="test", kind=kind, params={"n": number, "quote": "it's"}
        ) as run:
            for step, value in enumerate((1.5, math.inf, -math.inf, float(number))):
                run.log({"loss": value, "inf": -math.inf, "nan": math.nan}, step)
    with pytest.raises(ValueError), tracked_run.track("f", experiment="test", kind="mine"):
        raise ValueError
    with tracked_run.track("deleted", experiment="test", kind="mine") as run:
        pass
    store.client().delete_run(run.id)
    with tracked_run.track("elsewhere", experiment="away", kind="mine"):
        pass
    away = store.experiment(store.uri(), "away")
    store.client().delete_experiment(away)
    yield
    store.client().restore_experiment(away)


@pytest.mark.parametrize("status", ["FINISHED", "FAILED", None])
@pytest.mark.parametrize("tags", [{}, {"kind": "mine"}, {"kind": "mine", "python": "none"}])
def test_the_tables_say_what_the_client_says(
    filled: None, status: str | None, tags: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.sql_store() is not None
    read = history.rows(status, **tags)
    monkeypatch.setattr(store, "REVISION", "another")
    searched = history.rows(status, **tags)
    assert [ordered(row) for row in read] == [ordered(row) for row in searched]
    expected = ["f", "run 2", "run 1", "run 0"]
    if tags:
        expected.remove("run 1")
    if status:
        expected = [name for name in expected if (name == "f") == (status == "FAILED")]
    assert [row.name for row in read] == ([] if "python" in tags else expected)


def ordered(row: history.Row) -> str:
    mappings = (row.params, row.metrics, row.tags)
    return repr(
        [row.id, row.name, row.status, row.start_ms, *(sorted(m.items()) for m in mappings)]
    )
