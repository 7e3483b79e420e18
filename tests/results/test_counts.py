"""One count of verdicts and grades: what every page shows, and the check that finds another."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipelines.measurement import claim_catalog
from pipelines.measurement.claim_view import ClaimView
from pipelines.measurement.quotation import GRADES
from pipelines.measurement.verdict import VERDICTS
from pipelines.results import counts, scoreboard, web_page
from pipelines.results.evidence.check import check_evidence
from pipelines.runtime.places import ROOT

BOARD = [  # three claims of documents, one of ours
    SimpleNamespace(
        verdict="holds", quotations=[{"grade": "holds"}, {"grade": "slip"}], yours=None
    ),
    SimpleNamespace(verdict="holds", quotations=[], yours=None),
    SimpleNamespace(verdict="not run", quotations=[{"grade": "not tested"}], yours=object()),
    SimpleNamespace(verdict="reproduced", quotations=[], yours=None),
]

for each, document in zip(BOARD, ("HM", "LY", "B", counts.OURS), strict=True):
    each.document_of = document


def test_every_word_is_counted_and_those_of_none_are_not_shown() -> None:
    counted = counts.of_claims(BOARD)
    assert list(counted.verdicts) == list(VERDICTS)
    assert list(counted.grades) == list(GRADES)
    assert counted.lines() == [
        "3 claims of the documents: 2 `holds`, 1 `not run`.  ",
        "1 claims of ours beside them: 1 `reproduced`.  ",
        "3 quotations: 1 `slip`, 1 `not tested`, 1 `holds`.",
    ]
    assert web_page.tiles(BOARD) == [
        ("holds", 2),
        ("reproduced", 1),
        ("not run", 1),
        ("the printed version has a slip", 1),
        ("measured by you", 1),
    ]


def test_a_page_gets_the_counts_between_its_comments_and_nothing_else_changes() -> None:
    text = f"before\n{counts.START}\nold\n{counts.END}\nafter"
    counted = counts.of_claims(BOARD)
    assert counted.replace_block(text) == "\n".join(
        ["before", counts.START, *counted.lines(), counts.END, "after"]
    )
    assert counted.replace_block("no comments") == "no comments"


def test_what_is_published_is_that_of_the_evidence(tmp_path: Path) -> None:
    published = scoreboard.publish(tmp_path)
    lines = "\n".join(counts.of_claims(map(ClaimView, published["claims"])).lines())
    for page in (*counts.PAGES, "RESULTS.md"):
        assert lines in (ROOT / page).read_text(), page
    for file in ("RESULTS.md", "results.json"):
        assert (tmp_path / file).read_bytes() == (ROOT / file).read_bytes()
    assert len((ROOT / "RESULTS.md").read_bytes()) < 13 * 1024


def test_a_published_claim_names_the_source_that_it_states_today() -> None:
    published = json.loads((ROOT / "results.json").read_text())["claims"]
    for each in published:  # its run may have recorded another
        assert each["source"] == claim_catalog.load(each["claim"]).source


def test_a_page_with_other_counts_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "gradient-formula"
    monkeypatch.setattr(claim_catalog, "project_names", lambda: [name])
    results = tmp_path / "results.json"
    results.write_text((ROOT / "results.json").read_text())
    entry = scoreboard.project_entry(name)
    right = counts.of_claims([entry.view]).replace_block(f"{counts.START}{counts.END}")
    (tmp_path / "README.md").write_text(right)
    assert not check_evidence(results)["problems"]
    (tmp_path / "README.md").write_text(right.replace("1 `holds`", "2 `holds`"))
    [problem] = check_evidence(results)["problems"]
    assert problem.startswith(
        "README.md: its counts are not those of the evidence: 1 claims of the"
    )


@pytest.mark.parametrize("page", ["README.md", "docs/found.md"])
def test_the_errors_that_a_page_names_by_hand_are_the_published_ones(page: str) -> None:
    claims = json.loads((ROOT / "results.json").read_text())["claims"]
    [claim] = [each for each in claims if each["claim"] == "identity-beats-plain-cifar10"]
    for arm in ("identity", "plain"):
        found = claim["metrics"][f"{arm}_test_error_pct"]
        assert f"{found['mean']:.1f} ± {found['sd']:.1f}" in (ROOT / page).read_text()
