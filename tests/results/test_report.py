"""The scoreboard is a function of the database, and says what is there."""

import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import UserError
from pipelines.measurement import claim_catalog, sweep
from pipelines.measurement.claim_run.json_document import stated_document
from pipelines.measurement.claim_view import DOCUMENTS, ClaimView, group_by_document
from pipelines.measurement.verdict import UNDECIDED, Bound
from pipelines.results import published, scoreboard
from pipelines.running.seed_statistics import format_spread
from pipelines.tracking import mlflow_ui, store, ui_server
from tests.conftest import ROOT, command

NAME = "small-norm-factorization"


class Addresses(HTMLParser):
    """What a page of HTML refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [str(value) for key, value in attrs if key in ("src", "href")]


@pytest.fixture
def measured(home: Path, tmp_path: Path) -> dict[str, Any]:
    """One claim measured and a report written into `tmp_path`; the document of the claim."""
    document = sweep.check(NAME, "smoke", claim_catalog.load(NAME).scales["smoke"])
    scoreboard.write(tmp_path)
    return document


def test_the_report_is_a_function_of_the_database(measured: dict[str, Any], tmp_path: Path) -> None:
    verdicts = {e["claim"]: e["verdict"] for e in scoreboard.write(tmp_path / "again")["claims"]}
    for file in ("RESULTS.md", "results.json", "results.html", f"figures/{NAME}.png"):
        assert (tmp_path / file).read_bytes() == (tmp_path / "again" / file).read_bytes()
    assert verdicts[NAME] == "holds"
    assert verdicts["gradient-formula"] == "not run"
    assert set(verdicts) == set(claim_catalog.names())


def test_the_page_needs_nothing_but_itself(measured: dict[str, Any], tmp_path: Path) -> None:
    page, text = Addresses(), (tmp_path / "results.html").read_text()
    page.feed(text)
    own = [each for each in page.found if each.startswith(("data:image/png;base64,", "#"))]
    assert set(page.found) - set(own) == {mlflow_ui.run_page(measured["run_id"])}
    assert len([each for each in own if each.startswith("data:")]) == 1
    assert not re.search(r"<script [^>]|srcset=|@import|import\(|fetch\(|url\(", text)


def test_figures_are_the_published_ones_of_the_project_and_yours_as_it_was_recorded(
    home: Path, measured: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.results.evidence.bundles.FOLDER", ROOT / "mlruns" / "evidence")
    scoreboard.write(tmp_path / "out")
    written = {path.name: path.read_bytes() for path in (tmp_path / "out/figures").iterdir()}
    published = {path.name: path.read_bytes() for path in (ROOT / "figures").iterdir()}
    assert written.keys() >= published.keys()
    others = {name for name in published if written[name] != published[name]}
    assert others == {f"{NAME}.png"}
    assert written[f"{NAME}.png"] == store.artifact(measured["run_id"], "figure.png")


def test_a_run_with_other_settings_or_fewer_seeds_is_not_the_claim_s(home: Path) -> None:
    setting = claim_catalog.load(NAME).scales["smoke"]
    sweep.check(NAME, "smoke", type(setting)((3,), (0.5,), (8,)))
    document = sweep.check(NAME, "smoke", setting, seeds=1)
    assert not any(entry.shown for entry in scoreboard.entries())
    stated = sweep.check(NAME, "smoke", setting)
    yours = {entry.name: entry.yours for entry in scoreboard.entries()}[NAME]
    assert yours is not None
    assert yours.run.id == stated["run_id"] != document["run_id"]


def test_decided_claims_come_first_and_can_be_filtered(
    measured: dict[str, Any], tmp_path: Path
) -> None:
    text = (tmp_path / "results.html").read_text()
    rows = re.findall(
        r'<details .*?id="([\w-]+)" data-verdict="([\w ]+)".*?data-document="(\w+)"', text
    )
    assert rows[0] == (NAME, "holds", "HM")
    for verdict in UNDECIDED:
        documents = [document for _, each, document in rows if each == verdict]
        assert documents == sorted(documents, key=[*DOCUMENTS].index)
    assert sorted(name for name, *_ in rows) == claim_catalog.names()
    tiles = dict(re.findall(r'data-show="([\w ]+)".*?<b>(\d+)</b>', text))
    assert tiles["holds"] == "1"
    assert sum(int(tiles[verdict]) for verdict in UNDECIDED) == len(rows) - 1
    assert tiles["measured by you"] == "1"
    choices = re.findall(r'<option value="(\w+)">\w+: ', text)
    assert choices == [*DOCUMENTS]


def test_both_say_of_every_claim_what_was_measured(
    measured: dict[str, Any], tmp_path: Path
) -> None:
    ratio = measured["metrics"]["ratio"]
    said = f"ratio {format_spread(ratio)}"
    for file in ("RESULTS.md", "results.html"):
        text = (tmp_path / file).read_text()
        assert said in text
        assert all(name in text for name in claim_catalog.names())
    assert measured["run_id"][:8] in (tmp_path / "results.html").read_text()
    results = (tmp_path / "RESULTS.md").read_text()
    assert ui_server.address() not in results  # another home has other addresses
    rows = re.findall(r"^\| ([\w-]+|\[[\w-]+\].*?) \|", results, re.M)
    assert len(rows) == len(claim_catalog.names()) + rows.count("claim")
    claims = {each["claim"]: each for each in published.read(tmp_path / "results.json")["claims"]}
    assert claims[NAME]["metrics"] == measured["metrics"]
    assert "6 GPU h at paper scale" in (tmp_path / "results.html").read_text()  # its price
    assert set(claims) == set(claim_catalog.names())


def test_numbers_that_decide_nothing_can_be_shown(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = claim_catalog.load(NAME)
    document = sweep.check(NAME, "smoke", found.scales["smoke"])
    decisive = {bound.metric for bound in found.decided_by}
    other = next(key for key in document["metrics"] if key not in decisive)
    entry = scoreboard.entry_of_run(document)
    assert other not in entry.view.text("measured")
    shown = dataclasses.replace(found, shown=(other,))
    monkeypatch.setattr(claim_catalog, "load", lambda name: shown)
    assert f"{other} {format_spread(document['metrics'][other])}" in entry.view.text("measured")


@pytest.mark.parametrize(
    ("source", "document"),
    [
        ("HM Table 2: ResNet-110 of He et al. section 4.2", "HM"),
        ("B, after BHL (b)", "B"),
        ("LY Table 1 and HM section 4.1", "LY"),
        ("ours, after LY Table 1", "ours"),
    ],
)
def test_a_source_names_its_document(source: str, document: str) -> None:
    view = ClaimView({**stated_document(NAME), "source": source})
    assert view.document_of == document
    [(title, views)] = group_by_document([view])
    assert views == [view]
    assert title.startswith(document)


def test_every_claim_is_of_one_of_the_documents() -> None:
    views = [ClaimView(stated_document(name)) for name in claim_catalog.names()]
    assert {view.document_of for view in views} <= set(DOCUMENTS)


@pytest.mark.slow
def test_report_prints_one_document(home: Path, tmp_path: Path) -> None:
    done = command("pipelines", "report", "--json", "--out", str(tmp_path))
    assert done.stdout.lstrip().startswith("{")
    assert (tmp_path / "results.html").exists()


def test_a_verdict_is_by_the_rules_of_today(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = claim_catalog.load(NAME)
    document = sweep.check(NAME, "smoke", found.scales["smoke"])
    ratio = document["metrics"]["ratio"]["mean"]
    stricter = dataclasses.replace(
        found, decided_by=(Bound("ratio", at_most=ratio / 2, every=True),), printed=()
    )
    [before] = [entry for entry in scoreboard.entries() if entry.name == NAME]
    monkeypatch.setattr(claim_catalog, "load", lambda name: stricter)
    [after] = [entry for entry in scoreboard.entries() if entry.name == NAME]
    assert (before.verdict, after.verdict) == ("holds", "refuted")
    assert before.yours is not None and after.yours is not None
    judgement = {key: after.yours.judged[key] for key in before.yours.judged}
    assert before.document() | judgement == after.document()
    assert after.document()["as_printed"] == ""


def test_a_run_with_settings_of_before_is_left_out(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = claim_catalog.load(NAME)
    sweep.check(NAME, "smoke", found.scales["smoke"])
    other = type(found.scales["smoke"])((3,), (0.5,), (8,))
    today = dataclasses.replace(found, scales={"smoke": other})
    monkeypatch.setattr(claim_catalog, "load", lambda name: today)
    assert not any(entry.shown for entry in scoreboard.entries())


def test_without_evidence_nothing_is_published(home: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a folder of bundles that holds none"):
        scoreboard.publish(tmp_path / "published")
    assert not (tmp_path / "published").exists()
