"""The project from Python, as a notebook uses it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipelines import api
from pipelines.errors import UserError
from tests.conftest import ROOT

EXPECTED = (
    "(once), bundles: 1.",
    "are recorded already.",
    "--trials 20 has room.",
)  # what a notebook says beside its cells
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def test_a_claim_gives_its_verdict_table_curves_and_figure(home: Path) -> None:
    result = api.run("small-norm-factorization", "smoke", seeds=2, d=[2, 3], gamma=0.5)
    assert result.verdict == "holds"
    table = result.to_frame()
    assert sorted(table.groupby(["d", "gamma"]).seed.nunique().items()) == [
        ((2, 0.5), 2),
        ((3, 0.5), 2),
    ]
    curves = result.curves("ratio")
    assert {"name", "d", "seed", "metric", "step", "value"} == set(curves)
    assert sorted(set(curves.step)) == [5, 8, 16]
    worst = curves.groupby(["d", "seed"]).value.max()
    np.testing.assert_allclose(worst, table.set_index(["d", "seed"]).worst_ratio.sort_index())
    assert list(result.runs().run_id) == [result.run_id]
    assert result.metrics["ratio"]["mean"] == pytest.approx(
        table.groupby("seed").worst_ratio.max().mean()
    )
    assert [axes.get_ylabel() for axes in result.figure(d=3).axes] == ["l · max |A_i|", "matrices"]
    assert "small-norm-factorization: holds at smoke scale, 2 seeds" in repr(result)
    assert "max |A_i| &lt;= (4 pi" in result._repr_html_()

    again = api.run("small-norm-factorization", "smoke", seeds=2, d=(3, 2), gamma=[0.5])
    assert again.document["reused"]
    assert again.run_id == result.run_id
    with pytest.raises(UserError, match="must have been recorded"):
        api.result("small-norm-factorization")  # which was measured with other settings


def test_what_is_recorded_is_read_back_as_tables(home: Path) -> None:
    measured = api.run("gradient-formula", "smoke", seeds=5)
    assert api.result("gradient-formula").run_id == measured.run_id
    board = api.scoreboard()
    assert board.verdict["gradient-formula"] == measured.verdict
    assert board.verdict["two-phases"] == "not run"
    assert api.runs("trial").empty
    sweep = api.sweep("gradient-formula", "smoke", seeds=1, d=[2, 3])
    assert set(sweep.to_frame().d) == {2, 3}
    assert sweep.figure().axes
    settings = api.runs("setting", claim="gradient-formula")
    assert set(settings.run_id) == set(sweep.runs().run_id)
    assert set(settings["params.d"]) == {2, 3}
    assert set(settings["tags.mlflow.parentRunId"]) == {sweep.run_id}
    ids = list(settings.run_id)[:2]
    assert set(api.curves(ids).run_id) == set(ids)


def test_results_are_compared_with_the_first(home: Path, digits: Path) -> None:
    results = [
        api.run("mlp-digits", "smoke", seeds=2, steps=6, learning_rate=rate) for rate in (0.01, 0.1)
    ]
    found = api.compare(*results)
    table = found.to_frame().set_index(["metric", "run"]).loc["val_error_pct"]
    means = [each.metrics["val_error_pct"]["mean"] for each in results]
    assert list(table["mean"]) == means
    assert list(table["difference"]) == [0, means[1] - means[0]]
    assert list(table["low"].isna()) == [True, False]
    assert found.figure().axes[0].get_ylabel() == "val_error_pct"
    assert "mlp-digits smoke, rate 0.1, steps 6, 2 seeds" in repr(found)
    assert api.compare(*(each.run_id for each in results)).document == found.document


def test_a_recipe_gives_a_row_a_seed_and_learning_curves(home: Path, digits: Path) -> None:
    result = api.run("mlp-digits", "smoke", seeds=2, steps=6, learning_rate=0.02, width=16)
    assert result.verdict is None
    table = result.to_frame()
    assert list(table.seed) == [0, 1]
    assert table.test_error_pct.mean() == pytest.approx(result.metrics["test_error_pct"]["mean"])
    assert set(result.runs()["params.learning_rate"]) == {0.02}
    assert set(result.runs()["params.model_args.width"]) == {16}
    losses = result.curves("batch_loss")
    assert sorted(losses[losses.seed == 1].step) == list(range(1, 7))
    assert [axes.get_ylabel() for axes in result.figure().axes] == ["batch_loss", "val_error_pct"]
    assert "mlp-digits: test_error_pct" in repr(result)
    recorded = api.result("mlp-digits")
    assert recorded.metrics == result.metrics
    assert recorded.run_id == result.run_id


def test_mistakes_are_told_in_a_sentence(home: Path) -> None:
    with pytest.raises(UserError, match="Did you mean gradient-formula"):
        api.run("gradient-formla")
    with pytest.raises(
        UserError, match="A setting of small-norm-factorization must be a known name"
    ):
        api.run("small-norm-factorization", depth=3)
    with pytest.raises(UserError, match=r"d must be as \(.*Received: '8'"):
        api.run("small-norm-factorization", d="8")
    with pytest.raises(UserError, match=r"d must be as \(.*Received: 2.5"):
        api.run("small-norm-factorization", d=2.5)
    with pytest.raises(UserError, match="Did you mean learning_rate"):
        api.run("allconv-digits", learning_rte=0.1)
    for wrong in ({"batch_size": "64"}, {"nesterov": "no"}, {"seed": 1.5}):
        with pytest.raises(UserError, match=f"{next(iter(wrong))} must be as"):
            api.run("allconv-digits", **wrong)
    with pytest.raises(UserError, match="The scale of gradient-formula"):
        api.run("gradient-formula", "paper")
    with pytest.raises(UserError, match="Set seeds to their number"):
        api.run("allconv-cifar10", seed=3)  # a claim about a recipe
    with pytest.raises(UserError, match="A claim must be a known name"):
        api.runs(claim="two-phase")
    with pytest.raises(UserError, match=r'api.run\("two-phases"\)'):
        api.result("two-phases")


def test_training_from_python_prints_nothing(home: Path, digits: Path) -> None:
    source = "from pipelines import api; api.run('mlp-digits', 'smoke')"
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout + done.stderr == ""


def test_notebooks_are_stored_without_what_they_print() -> None:
    import nbformat

    assert [path.stem for path in NOTEBOOKS] == ["theorem", "train-compare-tune"]
    for path in NOTEBOOKS:
        cells = nbformat.read(path, 4).cells
        assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(
    path: Path, tmp_path: Path, digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nbclient
    import nbformat

    monkeypatch.setenv("MLRUNS_HOME", str(tmp_path / "mlruns"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(path, 4)
    nbclient.NotebookClient(
        notebook, timeout=900, resources={"metadata": {"path": tmp_path}}
    ).execute()
    printed = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    told = [output["text"] for output in printed if output.get("name") == "stderr"]
    lines = [line for text in told for line in text.splitlines()]
    assert [line for line in lines if not line.endswith(EXPECTED)] == []
    assert any("image/png" in output.get("data", {}) for output in printed)
