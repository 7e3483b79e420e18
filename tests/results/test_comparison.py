"""Runs side by side: what differs is shown, and nothing else."""

from pathlib import Path

import pytest

from pipelines.errors import UserError
from pipelines.results import comparison
from pipelines.tracking import store, tracked_run
from tests.tracking.test_ui import view


def record_run(name: str, params: dict[str, object], metrics: dict[str, float]) -> str:
    with tracked_run.track(name, experiment="test", kind="training", params=params) as run:
        run.log(metrics)
    return run.id


def test_only_what_differs_is_shown(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paper = record_run("paper", {"rate": 0.1, "batch": 128}, {"error": 6.38, "parameters": 5})
    stats = {
        "mean": 6.61,
        "sd/mean": 0.16,
        "error": 7.0,
        "sd/error": 0.2,
        "n/error": 5,
        "system/cpu": 3,
    }
    ours = record_run("ours", {"rate": 0.1, "batch": 64, "seed": 0}, stats)
    found = comparison.compare(["paper", ours[:12]])
    assert [run["run_id"] for run in found["runs"]] == [paper, ours]
    assert found["params"] == {"batch": ["128", "64"], "seed": [None, "0"]}
    assert found["equal_params"] == 1
    assert found["metrics"].keys() == {"error", "mean", "parameters"}
    error = found["metrics"]["error"]
    assert error["values"] == [6.38, 7.0]
    assert (error["sd"], error["n"]) == ([None, 0.2], [None, 5])
    assert error["difference"] == [0.0, pytest.approx(0.62)]
    assert found["metrics"]["parameters"]["difference"] == [0.0, None]
    comparison.print_comparison(found)
    shown = capsys.readouterr().out
    assert "7 ± 0.2 (n = 5)  +0.62" in shown
    assert "6.61 ± 0.16" in shown
    assert "rate" not in shown
    shown_runs = view(found["page"])["searchFilter"]
    assert shown_runs.count(paper) == shown_runs.count(ours) == 1


def test_the_newest_of_a_name_is_taken(home: Path) -> None:
    record_run("same", {}, {"error": 1})
    newest = record_run("same", {}, {"error": 2})
    found = comparison.compare(["same", "same"])
    assert {run["run_id"] for run in found["runs"]} == {newest}


def test_an_imported_run_is_found_by_its_first_id(home: Path) -> None:
    with tracked_run.track(
        "r", experiment="test", kind="training", tags={store.ORIGIN: "f" * 32}
    ) as run:
        pass
    for name in ("f" * 32, "f" * 8, "f" * 4):  # RESULTS.md shows eight letters
        found = comparison.compare([name, run.id])
        assert [each["run_id"] for each in found["runs"]] == [run.id, run.id]


def test_the_beginning_of_two_first_ids_names_neither(home: Path) -> None:
    for end in "ab":
        origin = {store.ORIGIN: "f" * 31 + end}
        with tracked_run.track("r", experiment="test", kind="training", tags=origin):
            pass
    with pytest.raises(UserError, match=r"must be of one run\. Received: ffffffff, of 2"):
        comparison.compare(["f" * 8, "r"])


def test_mistakes_are_sentences(home: Path) -> None:
    run_id = record_run("mine", {}, {})
    with pytest.raises(UserError, match="at least two runs"):
        comparison.compare([run_id])
    with pytest.raises(UserError, match="Did you mean mine"):
        comparison.compare([run_id, "mone"])
