"""The views that MLflow's UI opens with: what their tags say, unpacked as the UI does it."""

import base64
import json
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from pipelines.measurement import claim_catalog, sweep
from pipelines.results import evidence, reference_runs
from pipelines.tracking import history, mlflow_ui, store, tracked_run
from pipelines.tracking.bundles import exporting

NAME = "gradient-lower-bound"


def view(link: str) -> dict[str, Any]:
    """The view that a link opens."""
    path, _, query = link.partition("#/experiments/")[2].partition("?")
    key = parse_qs(query)["viewStateShareKey"][0]
    text = store.client().get_experiment(path.split("/")[0]).tags[mlflow_ui.VIEW + key]
    assert len(text) <= 5_000  # what MLflow's tables hold
    packed = base64.b64decode(text.removeprefix("deflate;"))
    return dict(json.loads(zlib.decompress(packed)))


def test_a_claim_s_page_leads_to_a_chart_of_measured_and_bound(home: Path, tmp_path: Path) -> None:
    document = sweep.check(NAME, "smoke", claim_catalog.load(NAME).scales["smoke"], seeds=1)
    note = history.row(document["run_id"]).tags[store.NOTE]
    state = view(note.partition("](")[2].partition(")")[0])
    assert document["run_id"] in state["searchFilter"]
    drawn = [card["selectedMetricKeys"] for card in state["compareRunCharts"]]
    assert ["gradient_squared", "bound"] in drawn
    assert len({card["uuid"] for card in state["compareRunCharts"]}) == len(drawn)


def test_an_imported_claim_has_its_chart(
    home: Path, tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = sweep.check(NAME, "smoke", claim_catalog.load(NAME).scales["smoke"], seeds=1)
    exporting.export_runs(tmp_path / "runs.zip", [NAME], None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/other/mlflow.db")
    evidence.import_runs(tmp_path / "runs.zip")
    note = history.row(document["run_id"]).tags[store.NOTE]
    assert view(note.partition("](")[2].partition(")")[0])["compareRunCharts"]


def test_a_run_without_charts_shows_each_curve_alone(home: Path) -> None:
    with tracked_run.track("r", experiment="test", kind="setting") as run:
        link = mlflow_ui.children_chart(run.id)
    assert "viewStateShareKey" not in link
    assert f"%27{run.id}%27" in link


def test_links_open_tables_with_metrics(home: Path) -> None:
    reference_runs.write()
    with tracked_run.track("s", experiment="tuning", kind="study"):
        pass
    links = mlflow_ui.links("http://h")
    assert links.keys() >= {"tuning", "trained networks", "trained networks, by claim"}
    assert "tuning, by claim" not in links
    newest, by_claim = view(links["trained networks"]), view(links["trained networks, by claim"])
    assert "metrics.`test_error_pct`" in newest["selectedColumns"]
    assert newest["orderByKey"] == "attributes.start_time"
    assert by_claim["orderByKey"] == "tags.`claim`"
    page = store.client().search_runs(  # what the UI asks for: the filter is one MLflow takes
        [store.experiment(store.uri(), "trained networks")],
        by_claim["searchFilter"],
        order_by=[f"{by_claim['orderByKey']} ASC"],
    )
    names = [run.data.tags["claim"] for run in page]
    assert names == sorted(names) != []
    assert store.NOTE in store.client().get_experiment_by_name("tuning").tags
    assert mlflow_ui.links("http://h") == links


def test_the_comparison_names_runs_and_experiments(home: Path) -> None:
    ids = []
    for experiment in ("one", "two", "one"):
        with tracked_run.track("r", experiment=experiment, kind="training") as run:
            ids.append(run.id)
    query = parse_qs(mlflow_ui.comparison_page(ids).partition("?")[2])
    assert json.loads(query["runs"][0]) == ids
    assert len(json.loads(query["experiments"][0])) == 2
