"""Runs side by side: what differs is shown, and nothing else."""

import re
from pathlib import Path
from statistics import mean

import pytest
import scipy.stats

from pipelines.errors import UserError
from pipelines.recipes import catalog
from pipelines.results import comparison
from pipelines.running import seeds
from pipelines.tracking import history, store, tracked_run
from tests.tracking.test_ui import view


def record_run(name: str, params: dict[str, object], metrics: dict[str, float]) -> str:
    with tracked_run.track(name, experiment="test", kind="study", params=params) as run:
        run.log(metrics)
    return run.id


def test_only_what_differs_is_shown(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paper = record_run("paper", {"rate": 0.1, "batch": 128}, {"error": 6.38, "parameters": 5})
    stats = {"error": 7.0, "sd/error": 0.2, "n/error": 5, "system/cpu": 3}
    ours = record_run("ours", {"rate": 0.1, "batch": 64, "seed": 0}, stats)
    found = comparison.compare(["paper", ours[:12]])
    assert [run["run_id"] for run in found["runs"]] == [paper, ours]
    assert found["params"] == {"batch": ["128", "64"], "seed": [None, "0"]}
    assert found["equal_params"] == 1
    assert found["metrics"].keys() == {"error", "parameters"}
    error = found["metrics"]["error"]
    assert error["values"] == [6.38, 7.0]
    assert (error["sd"], error["n"]) == ([None, 0.2], [1, 5])
    assert error["difference"] == [0.0, pytest.approx(0.62)]
    assert error["interval"] == [None, None]  # one run has no spread
    assert found["metrics"]["parameters"]["difference"] == [0.0, None]
    comparison.print_comparison(found)
    shown = capsys.readouterr().out
    assert "7.00 ± 0.20" in shown
    assert "rate" not in shown
    shown_runs = view(found["page"])["searchFilter"]
    assert shown_runs.count(paper) == shown_runs.count(ours) == 1


def test_two_settings_over_seeds_are_compared_by_their_seeds(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three seeds each: the interval is Welch's, and the page shows curves grouped by setting."""
    slow, fast = (
        seeds.repeat(catalog.get_recipe("mlp-digits", "smoke").override(learning_rate=rate), 3)
        for rate in (1e-4, 0.2)
    )
    names = [f"mlp-digits smoke, rate {rate}, 3 seeds" for rate in ("0.0001", "0.2")]
    found = comparison.compare([slow["run_id"], fast["run_id"]])
    assert [run["name"] for run in found["runs"]] == names
    val = found["metrics"]["val_error_pct"]
    errors = [
        [row.metrics["val_error_pct"] for row in seeds.trainings(history.row(each["run_id"]))]
        for each in (slow, fast)
    ]
    expected = scipy.stats.ttest_ind(errors[1], errors[0], equal_var=False).confidence_interval()
    assert val["interval"][1] == pytest.approx(expected)
    low, high = expected
    comparison.print_comparison(found)
    said = "within noise" if low <= 0 <= high else "more than noise"
    shown = capsys.readouterr().out
    assert re.search(rf"val_error_pct, B - A +\{val['difference'][1]:+.3g} .*{said}", shown)
    state = view(found["page"])
    assert state["groupBy"]["groupByKeys"] == [{"mode": "tag", "groupByData": store.TITLE}]
    first, *others = state["compareRunCharts"]
    assert (first["type"], first["metricKey"]) == ("LINE", "val_error_pct")
    assert [card["type"] for card in others] == sorted((c["type"] for c in others), reverse=True)
    rows = comparison.find_runs(names)
    for ending in ("png", "svg"):
        comparison.write_figure(comparison.draw(rows), tmp_path / f"curves.{ending}")
        assert (tmp_path / f"curves.{ending}").stat().st_size > 1000
    axes = comparison.draw(rows).axes[0]
    assert axes.get_ylabel() == "val_error_pct"
    assert [line.get_ydata()[-1] for line in axes.lines] == pytest.approx([*map(mean, errors)])
    with pytest.raises(UserError, match="ending of a picture's name"):
        comparison.write_figure(comparison.draw(rows), tmp_path / "curves.doc")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="needs a file that can be written"):
        comparison.write_figure(comparison.draw(rows), tmp_path / "file" / "curves.png")
    titles = [name.removesuffix(", 3 seeds") for name in names]
    assert comparison.find_runs(titles) == rows  # not their trainings, which are newer


def test_means_alone_are_metrics_of_a_run_over_seeds(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = catalog.get_recipe("mlp-digits", "smoke")
    document = seeds.repeat(recipe, 2)
    row = history.row(document["run_id"])
    assert not [key for key in row.metrics if "/" in key]
    assert row.metrics == {k: each["mean"] for k, each in document["metrics"].items()}
    assert seeds.spreads(row) == document["metrics"]
    assert seeds.repeat(recipe, 2) == document | {"reused": True}
    monkeypatch.setattr(store, "artifact", lambda *_: None)  # as after an export of numbers alone
    assert seeds.spreads(row) == document["metrics"]
    assert re.search(r"test [\d.]+ ± [\d.]+ %.*, 2 seeds", row.tags[store.RESULT])


@pytest.mark.parametrize("name", ["it's", 'a "run"', 'it\'s a "run"', "50 %", "a_b"])
def test_a_run_is_found_without_reading_the_others(
    name: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in ("its", "a run", "50 percent", "a-b"):
        record_run(other, {}, {"error": 1})
    run_id = record_run(name, {}, {"error": 2})
    if not {"'", '"'} <= set(name):
        monkeypatch.setattr(history, "outlines", pytest.fail)
    assert comparison.find_run(name).id == run_id
    assert comparison.find_run(run_id[:12]).id == run_id
    assert comparison.find_run(run_id).id == run_id


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
    with pytest.raises(UserError, match="2 to 26 runs"):
        comparison.compare([run_id])
    with pytest.raises(UserError, match="Did you mean mine"):
        comparison.compare([run_id, "mone"])
