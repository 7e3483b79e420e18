"""Runs found by their state and tags, of which deleted ones are none."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.tracking import history, store
from tests.tracking.bundles import tracked


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
        with tracked(f"run {number}", kind=kind, params={"n": number, "quote": "it's"}) as run:
            for step, value in enumerate((1.5, math.inf, -math.inf, float(number))):
                run.log({"loss": value, "inf": -math.inf, "nan": math.nan}, step)
    with pytest.raises(ValueError), tracked("f", kind="mine"):
        raise ValueError
    with tracked("deleted", kind="mine") as run:
        pass
    store.client().delete_run(run.id)
    with tracked("elsewhere", experiment="away", kind="mine"):
        pass
    away = store.experiment(store.uri(), "away")
    store.client().delete_experiment(away)
    yield
    store.client().restore_experiment(away)


@pytest.mark.parametrize("status", ["FINISHED", "FAILED", None])
@pytest.mark.parametrize("tags", [{}, {"kind": "mine"}, {"kind": "mine", "python": "none"}])
def test_runs_are_found_by_state_and_tags(
    filled: None, status: str | None, tags: dict[str, str]
) -> None:
    read = history.rows(status, **tags)
    expected = ["f", "run 2", "run 1", "run 0"]
    if tags:
        expected.remove("run 1")
    if status:
        expected = [name for name in expected if (name == "f") == (status == "FAILED")]
    assert [row.name for row in read] == ([] if "python" in tags else expected)


def test_curves_come_back_as_they_were_logged(filled: None) -> None:
    [row] = [row for row in history.rows() if row.name == "run 2"]
    assert row.params == {"n": "2", "quote": "it's"}
    assert math.isnan(row.metrics["nan"])
    steps, curves = history.curves([row.id])[row.id]
    assert steps.tolist() == [0, 1, 2, 3]
    assert curves["loss"].tolist() == [1.5, math.inf, -math.inf, 2.0]
    assert curves["inf"].tolist() == [-math.inf] * 4
    assert history.histories([row.id], "lo").keys() == {row.id}
    assert history.histories([row.id], "lo")[row.id].keys() == {"loss"}
