"""Reference runs: what the sources report stands beside our own runs, once, with its citation."""

import dataclasses
import re
from pathlib import Path

import pytest

from pipelines.measurement import claim_catalog, plan
from pipelines.measurement.claim_run import page
from pipelines.recipes import catalog
from pipelines.results import reference_runs, scoreboard
from pipelines.results._paper_numbers import TABLE, Reported
from pipelines.running.run import EXPERIMENT
from pipelines.tracking import history, journals, store

NAMES = [row.name for row in TABLE]
STATING = [
    *(name for name in claim_catalog.names() if claim_catalog.load(name).reported),
    *(n for n, s in catalog.RECIPES.items() if "paper" in s and s["paper"].reported),
]


def reference_rows() -> dict[str, history.Row]:
    """The reference runs of the store by the name of their row."""
    rows = history.rows(kind="reference")
    found = {row.name.removeprefix("paper: "): row for row in rows}
    assert len(found) == len(rows)
    return found


def test_what_is_reported_of_a_claim_or_recipe_is_one_run_with_its_numbers(home: Path) -> None:
    document = reference_runs.write()
    runs = reference_rows()
    assert runs.keys() == set(NAMES)
    for name in STATING:
        stated = reference_runs.stated_numbers(name)
        assert {key: runs[name].metrics[key] for key in stated} == stated
    for line in document["runs"]:
        row = history.row(line["run_id"])
        assert (row.name, row.metrics, row.status) == (line["name"], line["metrics"], "FINISHED")
        assert (row.tags["claim"], row.tags["where"]) == (line["claim"], line["where"])
        assert row.metrics


def test_the_numbers_are_printed_with_their_places(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [reference_runs.build_reference(row) for row in TABLE]
    runs = [{"name": row.name, "metrics": row.metrics, **row.tags} for row in rows]
    reference_runs.print_references({"runs": runs, "written": 0})
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    place = lines.index("allconv-cifar10: HM Table 2, section 4.1")
    assert "parameters 13,500,000" in lines[place + 1 :][:2]
    assert "best_half_seen_test_error_pct 6.38" in lines


def test_every_claim_and_recipe_with_reported_numbers_is_cited_once() -> None:
    assert len(NAMES) == len(set(NAMES))
    assert set(STATING) <= set(NAMES)
    for row in TABLE:
        assert not row.numbers.keys() & reference_runs.stated_numbers(row.name).keys(), (
            "typed a second time"
        )
        assert row.claim in claim_catalog.names()
        assert row.name in (*claim_catalog.names(), *catalog.RECIPES)


def test_reference_runs_are_where_ours_are(home: Path) -> None:
    reference_runs.write()
    for name, row in reference_rows().items():
        ours = claim_catalog.load(name).family if name in claim_catalog.names() else EXPERIMENT
        experiment = store.client().get_run(row.id).info.experiment_id
        assert store.client().get_experiment(experiment).name == ours
        if name in catalog.RECIPES:
            is_claim = name in claim_catalog.names()
            stated = claim_catalog.get_settings if is_claim else catalog.get_recipe
            settings = stated(name, "paper").flat()
            assert row.params == {k: v for k, v in settings.items() if k != "seed"}
            assert row.tags["recipe"] == name
    own = plan.MeasurementPlan(
        name="skip-length",
        scale="paper",
        settings=claim_catalog.load("skip-length").scales["paper"],
        seeds=1,
    ).params
    assert reference_rows()["skip-length"].params == {
        k: str(v) for k, v in own.items() if k != "seeds"
    }


@pytest.mark.parametrize("row", TABLE, ids=NAMES)
def test_a_citation_has_authors_title_year_and_arxiv_id(row: Reported) -> None:
    for citation, where in row.places:
        assert re.fullmatch(r"[A-Z]\. .+: .+\. .+, (19|20)\d\d", citation)
        assert re.search(r"arXiv \d{4}\.\d{4,5}, |Information Processing Systems", citation)
        assert where
    run = reference_runs.build_reference(row)
    assert run.tags["source"] == run.tags["scale"] == "paper"
    assert len(run.tags["mlflow.note.content"]) < page.MAX_CHARS
    assert all(str(place) in run.tags["mlflow.note.content"] for place in sum(row.places, ()))
    assert run.tags["n"] == (str(row.n) if row.n else "not stated")


def test_twice_is_once(home: Path) -> None:
    first = reference_runs.write()
    again = reference_runs.write()
    assert (first["written"], again["written"]) == (len(TABLE), 0)
    assert first["runs"] == again["runs"]
    assert len(history.rows(None, kind="reference")) == len(TABLE)


def test_a_changed_number_replaces_its_run_and_no_other(home: Path) -> None:
    before = reference_runs.write()["runs"]
    place = NAMES.index("allconv-cifar10")
    row = dataclasses.replace(TABLE[place], numbers={"parameters": 13.6e6})
    changed = reference_runs.write((*TABLE[:place], row, *TABLE[place + 1 :]))
    after = changed["runs"]
    assert changed["written"] == 1
    assert [i for i in range(len(TABLE)) if before[i] != after[i]] == [place]
    assert reference_rows()["allconv-cifar10"].metrics == {
        "best_half_seen_test_error_pct": 6.38,
        "parameters": 13.6e6,
    }
    assert store.client().get_run(before[place]["run_id"]).info.lifecycle_stage == "deleted"


def test_a_run_that_was_broken_off_and_one_without_a_row_are_cleared(home: Path) -> None:
    whole = reference_runs.write(TABLE[:2])["runs"]
    store.client().set_terminated(whole[0]["run_id"], "KILLED")
    assert reference_runs.write(TABLE[:1])["written"] == 1
    assert [row.name for row in history.rows(None, kind="reference")] == [whole[0]["name"]]
    assert journals.find_stale(home / "live", store.uri()) == []


def test_what_is_reported_is_not_taken_for_measured(home: Path) -> None:
    reference_runs.write()
    assert not any(entry.shown for entry in scoreboard.entries())
    assert scoreboard.latest_studies() == []
    assert {row.tags["kind"] for row in history.rows(None)} == {"reference"}


def test_best_mean_and_deviation_are_told_apart() -> None:
    metrics = reference_runs.build_reference(TABLE[NAMES.index("resnet-cifar10")]).metrics
    assert metrics["test_error_pct"] == 6.61
    assert metrics["sd/test_error_pct"] == 0.16
    assert metrics["best_of_5_test_error_pct"] == 6.43
