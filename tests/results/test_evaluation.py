"""Evaluation: a stored network gives the numbers that were recorded of it, or it is said."""

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from pipelines.cli import results_command
from pipelines.errors import UserError
from pipelines.recipes.catalog import get_recipe
from pipelines.results import evaluation
from pipelines.running.run import TrainingObserver, run
from pipelines.tracking import history, store, tracked_run


def test_recorded_numbers_are_measured_again(
    home: Path, digits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = get_recipe("mlp-digits", "smoke").override(steps=2, train_examples=64)
    row = history.row(run(recipe).run_id)
    results_command.evaluate_command(row.id[:10], json=True)
    document = json.loads(capsys.readouterr().out)
    assert (document["run_id"], document["agrees"]) == (row.id, True)
    found = document["metrics"]
    assert found.keys() == {"val_error_pct", "val_loss", "test_error_pct", "test_loss"}
    for key, each in found.items():
        assert each["recorded"] == row.metrics[key]
        assert each["measured"] == pytest.approx(each["recorded"], rel=1e-5)
    assert history.row(row.id) == row  # nothing is written

    moved = row.metrics["test_error_pct"] + 1
    store.client().log_metric(row.id, "test_error_pct", moved, step=99)
    with pytest.raises(SystemExit) as ended:
        results_command.evaluate_command(row.name, json=False)
    said = capsys.readouterr()
    assert ended.value.code == 1
    assert f"Received: test_error_pct {moved - 1:.6g} now, {moved:.6g} recorded" in said.err
    assert said.err.count("\n") == 1
    assert "differs" in said.out


def test_what_a_search_has_not_read_is_not_read(home: Path, digits: Path) -> None:
    recipe = get_recipe("linear-teacher", "smoke").override(steps=2)
    seen = TrainingObserver(report=lambda metrics, step: None, lost={})
    found = evaluation.evaluate(run(recipe, kind="trial", watch=seen).run_id)
    assert found["metrics"].keys() == {"val_loss"}
    assert found["agrees"]
    with contextlib.closing(sqlite3.connect(home / "mlflow.db")) as database, database:
        database.execute("DELETE FROM latest_metrics WHERE key LIKE 'val%'")
    with pytest.raises(UserError, match="must have recorded numbers"):
        evaluation.evaluate(found["run_id"])


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({}, r"must be a training\. Received: made \(\w+\), of kind claim"),
        ({"data": "digits", "batch_size": "32", "model": "mlp"}, "is FINISHED and has none"),
        ({"data": "digits", "batch_size": "32"}, r"must say how .*: 'model'\. Train"),
        ({"data": "digits", "batch_size": "x", "model": "mlp"}, "invalid literal for int"),
        (
            {"data": "digits", "batch_size": "32", "model": "mlp", "train_examples": "["},
            "must say how it was trained.*Expecting value",
        ),
        (
            {"data": "digits", "batch_size": "32", "model": "mlp", "precision": "odd"},
            "must say how it was trained.*'odd'",
        ),
    ],
)
def test_a_run_without_a_network_is_said(params: dict[str, str], said: str, home: Path) -> None:
    with tracked_run.track(
        "made", experiment="t", kind="claim", params=params, tags={"recipe": "mlp-digits"}
    ):
        pass
    with pytest.raises(UserError, match=said):
        evaluation.evaluate("made")
    with pytest.raises(UserError, match="A run must be a known name"):
        evaluation.evaluate("none")
