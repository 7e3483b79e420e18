"""The views that MLflow's UI opens with: what their tags say, unpacked as the UI does it."""

import base64
import json
import socket
import subprocess
import sys
import urllib.request
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest

from pipelines.claims.ours.identity_beats_plain import recipes
from pipelines.errors import UserError
from pipelines.measurement import cells, claim_catalog, sweep
from pipelines.measurement.claim_run import page
from pipelines.measurement.plan import stated_plan
from pipelines.results import comparison, reference_runs, scoreboard
from pipelines.results.evidence import bundles
from pipelines.running.run import run
from pipelines.runtime import provenance
from pipelines.tracking import history, mlflow_ui, store, ui_server
from pipelines.tracking.bundles import exporting
from tests.conftest import ROOT
from tests.tracking.bundles import tracked

NAME = "gradient-lower-bound"


def shown_in(view: dict[str, Any]) -> list[Any]:
    """The runs that the UI shows in a view, in its order: its filter is one that MLflow takes."""
    experiments = [each.experiment_id for each in store.client().search_experiments()]
    order = f"{view['orderByKey']} {'ASC' if view['orderByAsc'] else 'DESC'}"
    return list(store.client().search_runs(experiments, view["searchFilter"], order_by=[order]))


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
    assert state["runsHiddenMode"] == "SHOW_ALL"
    assert state["groupBy"] is None  # it is one run
    cards = state["compareRunCharts"]
    assert {card["xAxisScaleType"] for card in cards} == {"log"}  # depth
    by_section: dict[str, list[list[str]]] = {}
    for card in cards:
        by_section.setdefault(card["metricSectionId"], []).append(card["selectedMetricKeys"])
    compared = by_section["gradient_squared vs bound"]  # a chart a setting
    assert 1 < len(compared) <= page.MOST_SETTINGS
    for measured, bound in compared:
        assert measured.removesuffix("gradient_squared") == bound.removesuffix("bound")
    drawn = {key for card in cards for key in card["selectedMetricKeys"]}
    assert drawn <= history.row(document["run_id"]).metrics.keys()
    assert len({card["uuid"] for card in cards}) == len(cards)
    sections = {each["name"]: each["display"] for each in state["compareRunSections"]}
    assert [name for name, shown in sections.items() if shown] == [*by_section]
    assert {"curve", "seed", "Model metrics"} <= sections.keys()  # which the UI adds: folded


def test_the_curve_of_a_setting_is_the_mean_over_its_seeds(home: Path) -> None:
    document = sweep.check(NAME, "smoke", claim_catalog.load(NAME).scales["smoke"], seeds=3)
    plan = stated_plan(NAME, "smoke", 3)
    measured = cells.read_plan(plan, document["run_id"]) or []
    [metric, *_] = [m for m in history.row(document["run_id"]).metrics if m.startswith("curve/")]
    point = measured[0].point
    axes = [key for key, values in plan.axes.items() if len(values) > 1]
    *words, key = metric.removeprefix("curve/").split(" ")
    assert words == [word for axis in axes for word in (axis, str(point[axis]))]
    alike = [m.curves[key] for m in measured if m.point == point]
    assert len(alike) == 3
    logged = history.histories([document["run_id"]], metric)[document["run_id"]][metric]
    means = zip(measured[0].steps.tolist(), np.mean(alike, axis=0).tolist(), strict=True)
    assert logged == pytest.approx(dict(means))


def test_a_sweep_s_chart_is_of_its_settings(home: Path) -> None:
    document = sweep.sweep(NAME, "smoke", ["d=2,3"], seeds=2)
    note = history.row(document["run_id"]).tags[store.NOTE]
    state = view(note.partition("](")[2].partition(")")[0])
    assert document["run_id"] in state["searchFilter"]
    keys = {each["groupByData"] for each in state["groupBy"]["groupByKeys"]}
    assert "d" in keys  # the seeds of a setting are one line
    drawn = [card["selectedMetricKeys"] for card in state["compareRunCharts"]]
    assert ["gradient_squared", "bound"] in drawn


def test_an_imported_claim_has_its_chart(
    home: Path, tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = sweep.check(NAME, "smoke", claim_catalog.load(NAME).scales["smoke"], seeds=1)
    chart = mlflow_ui.children_chart(document["run_id"])
    earlier_page = f"**Said by earlier code**\n\n[All]({chart})"
    store.client().set_tag(document["run_id"], store.NOTE, earlier_page)
    exporting.export_runs(tmp_path / "runs.zip", [NAME], None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/other/mlflow.db")
    bundles.import_runs(tmp_path / "runs.zip")
    [row] = history.rows(kind="claim")
    assert row.origin == document["run_id"]
    note = row.tags[store.NOTE]
    assert note.startswith(f"**{document['verdict']}** at smoke scale: ratio ")
    assert f"![figure](get-artifact?path=figure.png&run_uuid={row.id})" in note
    assert store.artifact(row.id, "figure.png")
    assert view(note.partition("](")[2].partition(")")[0])["compareRunCharts"]


def test_a_claim_s_page_overlays_its_trainings_arm_by_arm(home: Path, digits: Path) -> None:
    name = "identity-beats-plain"
    setting = claim_catalog.load(name).scales["smoke"]
    reused = run(recipes(setting, 0)["plain"]).run_id
    document = sweep.check(name, "smoke", setting, seeds=1)
    note = history.row(document["run_id"]).tags[store.NOTE]
    state = view(note.partition("](")[2].partition(")")[0])
    assert state["groupBy"]["groupByKeys"] == [{"mode": "tag", "groupByData": store.ARM}]
    number = store.experiment(store.uri(), "trained networks")
    shown = store.client().search_runs([number], state["searchFilter"])
    arms = {each.data.tags[store.ARM]: each for each in shown}
    assert arms.keys() == {"identity", "plain"}
    assert arms["plain"].info.run_id == reused
    assert arms["identity"].info.run_name.startswith("identity seed 0")  # the UI cuts long names
    cards = state["compareRunCharts"]
    drawn = {key for card in cards for key in card.get("selectedMetricKeys", ())}
    assert cards[0]["metricKey"] == "val_error_pct"
    assert all(drawn & each.data.metrics.keys() for each in shown)
    assert not any(key.startswith("system/") for each in shown for key in each.data.metrics)
    page = arms["identity"].data.tags[store.NOTE]
    assert f"{arms['identity'].data.metrics['test_error_pct']:.4g} %" in page.splitlines()[0]
    assert f"Made by: `python -m {provenance.tags()['mlflow.source.name']}`" in page


def test_a_view_holds_as_many_runs_as_it_may(home: Path) -> None:
    ids = []
    for _ in range(mlflow_ui.MAX_LISTED_IDS + 1):
        created = store.client().create_run(store.experiment(store.uri(), "test"))
        ids.append(created.info.run_id)
    state = view(mlflow_ui.learning_curves([*map(history.row, ids)]))
    found = store.client().search_runs(
        [store.experiment(store.uri(), "test")], state["searchFilter"]
    )
    assert {each.info.run_id for each in found} == set(ids[: mlflow_ui.MAX_LISTED_IDS])


def test_a_run_without_charts_shows_each_curve_alone(home: Path) -> None:
    with tracked("r", kind="setting") as run:
        link = mlflow_ui.children_chart(run.id)
    assert "viewStateShareKey" not in link
    assert f"%27{run.id}%27" in link


def test_links_open_tables_with_metrics(home: Path) -> None:
    reference_runs.write()
    scoreboard.mark_standings()
    with tracked("s", experiment="tuning", kind="study"):
        pass
    papers = "trained networks, reported and not run here"
    links = mlflow_ui.links("http://h")
    assert links.keys() >= {"tuning", "trained networks", papers}
    assert "trained networks, by claim" not in links  # nothing was measured
    assert "tuning, by claim" not in links
    newest, reported = view(links["trained networks"]), view(links[papers])
    assert "metrics.`test_error_pct`" in newest["selectedColumns"]
    assert newest["orderByKey"] == "attributes.start_time"
    names = [run.data.tags["claim"] for run in shown_in(reported)]
    assert names == sorted(names) != []
    assert store.NOTE in store.client().get_experiment_by_name("tuning").tags
    assert mlflow_ui.links("http://h") == links
    assert mlflow_ui.best_link(links) in links.values()


def test_of_a_claim_s_runs_the_one_that_counts_stands_first(home: Path) -> None:
    name = "gradient-formula"
    setting = claim_catalog.load(name).scales["cpu"]
    fewer = sweep.check(name, "cpu", setting, seeds=2)["run_id"]
    counts = sweep.check(name, "cpu", setting, seeds=None)["run_id"]
    newest = sweep.check(name, "smoke", claim_catalog.load(name).scales["smoke"], seeds=2)["run_id"]
    by_claim = view(mlflow_ui.links("http://h")["linear theory, by claim"])
    recorded = {run.info.run_id: run.data.tags[store.STANDING] for run in shown_in(by_claim)}
    store.client().set_tag(fewer, "verdict", "smaller scale")  # as earlier versions said it
    scoreboard.mark_standings()
    assert history.row(fewer).tags["verdict"] == "not judged (smaller run)"
    shown = {run.info.run_id: run.data.tags[store.STANDING] for run in shown_in(by_claim)}
    assert list(shown) == [counts, newest, fewer]
    assert list(shown.values()) == [
        f"{name} {each}" for each in (store.YOURS, *2 * [store.UNCOUNTED])
    ]
    assert recorded == shown


def test_what_papers_report_stands_below_what_was_measured(home: Path) -> None:
    reference_runs.write()
    scoreboard.mark_standings()
    tags = {row.tags["claim"]: row.tags for row in history.rows(kind="reference")}
    assert all(name == each[store.PAPERS_ALONE] for name, each in tags.items())
    about = {"claim": "zero-init", "scale": "smoke", "seeds": "1", "fingerprint": "0", "code": "0"}
    about |= {"source": "LY", "verdict": "inconclusive", "as_printed": "", "floor": ""}
    with tracked("r", kind="claim", tags=about, params={"seeds": 1}):
        pass
    scoreboard.mark_standings()
    [paper] = history.rows(kind="reference", claim="zero-init")
    assert paper.tags[store.STANDING] == f"zero-init {store.PAPERS}"
    assert store.PAPERS_ALONE not in paper.tags


def test_what_is_opened_first_are_the_runs_beside_your_newest(home: Path) -> None:
    def first() -> str:
        addresses = mlflow_ui.links("http://h")
        best = mlflow_ui.best_link(addresses)
        return next(title for title, link in addresses.items() if link == best)

    project = {store.OWNER: store.PROJECT}
    with tracked("p", experiment="linear theory", kind="claim", tags=project):
        pass
    assert first() == "linear theory, by claim"
    with tracked("s", experiment="tuning", kind="trial"):
        pass
    with tracked("c", experiment="trained networks", kind="claim"):
        pass
    assert first() == "trained networks, by claim"
    with tracked("t", experiment="trained networks"):
        pass
    assert first() == "trained networks"
    links = mlflow_ui.links("http://h")
    assert view(links["tuning, best trials"])["orderByKey"] == "metrics.`val_error_pct`"
    columns = view(links["linear theory, by claim"])["columnOrder"]
    assert columns[:3] == ["attributes.`Run Name`", "tags.`standing`", "tags.`verdict`"]


def test_the_comparison_names_runs_and_experiments(home: Path) -> None:
    ids = []
    for experiment in ("one", "two", "one"):
        with tracked("r", experiment=experiment) as run:
            ids.append(run.id)
    link = mlflow_ui.comparison_page(ids, [mlflow_ui.bar_chart("error")])
    query = parse_qs(link.partition("?")[2])
    assert query["workflowType"] == ["machine_learning"]
    assert next(iter(query)) == "runs"  # the page reads it only there
    curves = parse_qs(mlflow_ui.learning_curves([*map(history.row, ids)]).partition("?")[2])
    assert all(each in curves["searchFilter"][0] for each in ids)
    assert json.loads(query["runs"][0]) == ids
    assert len(json.loads(query["experiments"][0])) == 2


def test_the_comparison_draws_what_runs_share(home: Path) -> None:
    ids = []
    for name in ("a", "b"):
        with tracked(name) as run:
            for step in (1, 2):
                run.log({"val_loss": 1.0, f"of_{name}": 1.0, "system/cpu": 1.0}, step)
            run.log({"test_loss": 2.0})
        ids.append(run.id)
    state = view(comparison.compare(ids)["page"])
    drawn = [(card["type"], card["metricKey"]) for card in state["compareRunCharts"]]
    assert drawn == [("LINE", "val_loss"), ("BAR", "test_loss")]
    assert all(each in state["searchFilter"] for each in ids)


def test_a_port_that_is_taken_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"free port. Received: 127.0.0.1:{port}"):
            ui_server.check_port("127.0.0.1", port)
    ui_server.check_port("127.0.0.1", port)


@pytest.mark.slow
def test_what_to_open_is_printed_when_the_server_answers_and_links_name_its_port(
    home: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "pipelines", "ui", "--port", str(port)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            said = next(line for line in server.stdout if line.startswith("Open this: "))
            where = f"http://127.0.0.1:{port}"
            assert said.startswith(f"Open this: {where}/")
            with urllib.request.urlopen(f"{where}/health", timeout=5) as answer:  # noqa: S310
                assert answer.status == 200
            assert ui_server.address() == where
            again = subprocess.run(
                words[:4], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
            )
            assert again.stdout.splitlines()[-1].startswith("It is served already. Open this: ")
        finally:
            server.terminate()
    assert ui_server.address() == ui_server.DEFAULT


def test_settings_are_drawn_in_the_order_of_their_numbers() -> None:
    metrics = [f"curve/d {d} rate {rate} loss" for d in (2, 64, 8) for rate in (0.5, 1e-05)]
    [[drawn]] = page.sections([("loss",)], metrics).values()
    assert [key.split(" ")[1] for key in drawn] == ["2", "2", "8", "8", "64", "64"]
    assert drawn[0] == "curve/d 2 rate 1e-05 loss"
    assert page.sections([("loss",)], ["curve/loss"]) == {"loss": [["curve/loss"]]}
    assert page.sections([("loss", "bound")], ["val_loss"]) == {}
