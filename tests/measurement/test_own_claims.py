"""Claims of a person's own: a file, remembered by name, and a package with an entry point."""

import json
import re
import sys
from pathlib import Path

import pytest

from pipelines import api
from pipelines.errors import UserError
from pipelines.measurement import claim_catalog, own_claims
from pipelines.measurement.claim_view import ClaimView
from pipelines.results import scoreboard
from pipelines.results.evidence import adding
from pipelines.tracking import history, store
from tests.conftest import ROOT, Go, command

PAGE = (ROOT / "docs" / "how-to" / "own.md").read_text()
[CLAIM] = [code for code in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "CLAIM = Th" in code]
CLAIM = CLAIM.replace("(8, 32, 128)", "(8, 32)").replace("inner=", "batch=1, seeds=3, inner=")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "orthogonal_entries.py"
    path.write_text(CLAIM)
    return path


@pytest.fixture(autouse=True)
def fresh(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process, and a home, that know no claim of their own."""
    monkeypatch.setattr(own_claims, "_loaded", {})
    monkeypatch.setattr(own_claims, "_refused", set())


def test_a_file_has_a_verdict_a_page_and_a_row_under_yours(file: Path) -> None:
    result = api.run(str(file))  # in workers: three batches
    assert (result.verdict, result.name) == ("holds", "orthogonal-entries")
    assert len(result.to_frame()) == 3
    assert api.run("orthogonal-entries").run_id == result.run_id
    assert store.artifact(result.run_id, "figure.png")
    entry = next(e for e in scoreboard.entries() if e.name == "orthogonal-entries")
    assert (entry.view.document_of, entry.verdict) == ("yours", "holds")
    assert entry.project is None
    assert "my notes, Lemma 1" in history.row(result.run_id).tags[store.NOTE]


def test_it_is_no_claim_of_the_project(file: Path) -> None:
    name = claim_catalog.add(str(file))
    assert name in claim_catalog.names()
    assert name not in claim_catalog.project_names()
    with pytest.raises(UserError, match=f"export FILE.zip {name}"):
        adding.add([name])


def test_another_source_is_another_measurement(file: Path) -> None:
    first = command("pipelines", "run", str(file), "--json")
    again = command("pipelines", "run", "orthogonal-entries", "--json")
    file.write_text(CLAIM.replace("at_most=1", "at_most=0.3").replace("4 * np", "5 * np"))
    changed = command("pipelines", "run", "orthogonal-entries", "--json")
    documents = [json.loads(each.stdout) for each in (first, again, changed)]
    assert [each["verdict"] for each in documents] == ["holds", "holds", "refuted"]
    assert documents[0]["run_id"] == documents[1]["run_id"] != documents[2]["run_id"]
    assert "runs as it stands" in first.stderr


def test_a_process_refuses_a_file_that_has_changed_since(file: Path) -> None:
    claim_catalog.add(str(file))
    file.write_text(CLAIM + "\n# another\n")
    with pytest.raises(UserError, match="Begin a new process"):
        claim_catalog.add(str(file))


def test_runs_go_where_the_claim_is_unknown(file: Path, tmp_path: Path, go: Go) -> None:
    run_id = api.run(str(file)).run_id
    bundle = tmp_path / "runs.zip"
    assert command("pipelines", "export", str(bundle), "orthogonal-entries").returncode == 0
    go("elsewhere")
    imported = command("pipelines", "import", str(bundle))
    assert (imported.returncode, imported.stdout) == (0, "1 runs imported, 0 are here already.\n")
    [row] = [row for row in history.rows(kind="claim") if row.origin == run_id]
    assert row.tags["verdict"] == "holds"


@pytest.mark.parametrize(
    ("name", "source", "said"),
    [
        ("no_such.py", None, "which is not there"),
        ("2 claims.py", CLAIM, "whose name is no claim's"),
        ("gradient_formula.py", CLAIM, "the project has a claim gradient-formula"),
        ("mine.py", "x = 1", "it must have CLAIM"),
        ("mine.py", "CLAIM = 1", "it must have CLAIM"),
        ("mine.py", "\n1 / 0", "line 2: ZeroDivisionError"),
        ("mine.py", "1 +", "SyntaxError"),
        (
            "mine.py",
            CLAIM.replace("family=", "familiar="),
            "line [34][0-9]: TypeError.*familiar",
        ),
    ],
)
def test_a_broken_file_is_one_sentence_and_not_remembered(
    tmp_path: Path, name: str, source: str | None, said: str
) -> None:
    if source:
        (tmp_path / name).write_text(source)
    with pytest.raises(UserError, match=said):
        claim_catalog.add(str(tmp_path / name))
    assert own_claims.find() == {}


def test_what_has_gone_blocks_no_listing(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    claim_catalog.add(str(file))
    file.unlink()
    monkeypatch.setattr(own_claims, "_loaded", {})
    for _ in range(2):
        assert claim_catalog.names() == claim_catalog.project_names()
    said = capsys.readouterr().err
    assert said.count("Your claim orthogonal-entries is left out.") == 1
    assert "own_claims.json" in said


def test_a_package_offers_claims(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "claims_of_mine"
    (tmp_path / "mine-1.0.dist-info").mkdir()
    (tmp_path / "mine-1.0.dist-info" / "METADATA").write_text("Name: mine\nVersion: 1.0\n")
    (tmp_path / "mine-1.0.dist-info" / "entry_points.txt").write_text(
        "[near_identity.claims]\nmine = claims_of_mine\n"
    )
    package.mkdir()
    (package / "__init__.py").write_text("")
    file.rename(package / "orthogonal_entries.py")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    own_claims._offered.cache_clear()
    try:
        assert api.run("orthogonal-entries").verdict == "holds"
        view = ClaimView(scoreboard.entries("orthogonal-entries")[0].document())
        assert view.document_of == "yours"
    finally:
        own_claims._offered.cache_clear()
        sys.modules.pop("claims_of_mine", None)
