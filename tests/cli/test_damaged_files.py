"""A damaged or foreign file: every listing goes on without it, and names it in one line."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pipelines.__main__ import dispatch
from pipelines.cli import doctor
from pipelines.errors import UserError
from pipelines.measurement import claim_catalog, own_claims
from pipelines.results import published
from pipelines.results.evidence import bundles
from pipelines.runtime import places
from tuning.__main__ import dispatch as dispatch_tuning

CLAIM = "gradient-formula"
SHIPPED = bundles.FOLDER


def check_listings(file: Path, capsys: pytest.CaptureFixture[str], *names: str) -> None:
    """Every listing has its table; those named say what to do about the file, in one line."""
    commands = {
        "list": (["list"], CLAIM),
        "show": (["show", CLAIM], CLAIM),
        "data": (["data"], "cifar10"),
        "evidence": (["evidence", "list"], "bundles, "),
    }
    for name, (words, shown) in commands.items():
        own_claims._refused.clear()
        dispatch(words)
        printed = capsys.readouterr()
        assert shown in printed.out
        assert sum(str(file) in line for line in printed.err.splitlines()) == (name in names)


@pytest.mark.parametrize("content", ["junk", "[1]", '"text"', "[" * 100_000])
def test_a_damaged_list_of_claims_is_left_out(
    content: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / own_claims.REMEMBERED).write_text(content)
    check_listings(home / own_claims.REMEMBERED, capsys, "list")
    own = home / "mine.py"
    own.write_text("from pipelines.claims.hardt_ma.gradient_formula import CLAIM")
    with pytest.raises(UserError, match=r"must be readable.*Delete it"):
        claim_catalog.add(str(own))  # which would write over it
    assert (home / own_claims.REMEMBERED).read_text() == content


@pytest.mark.parametrize("content", ["junk", "[1]", "{}", '{"claims": [1], "unfinished": []}'])
def test_without_readable_results_nothing_is_published(
    content: str,
    home: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / published.FILE
    file.write_text(content)
    monkeypatch.setattr(published, "RESULTS", file)
    check_listings(file, capsys, "list", "show")
    with pytest.raises(UserError, match="Bring it back: git checkout"):
        published.read(file)


def cut(path: Path, whole: bytes) -> None:
    path.write_bytes(whole[:-100])


def changed(path: Path, whole: bytes) -> None:
    path.write_bytes(whole[:999] + b"\0" * 99 + whole[1_098:])


def directory(path: Path, whole: bytes) -> None:
    path.mkdir()


@pytest.mark.parametrize("make", [cut, changed, directory])
def test_a_damaged_bundle_is_left_out(
    make: Callable[[Path, bytes], None],
    home: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [shipped] = SHIPPED.glob("gradient-formula-*.zip")
    whole = next(SHIPPED.glob("zero-init-*.zip")).read_bytes()
    folder = tmp_path / "mlruns" / "evidence"
    folder.mkdir()
    monkeypatch.setattr(bundles, "FOLDER", folder)
    shutil.copy(shipped, folder)
    damaged = folder / "zero-init-00000000.zip"
    make(damaged, whole)
    is_listed = make is changed  # by its manifest, which is whole
    check_listings(damaged, capsys, *["evidence"] * (not is_listed))
    assert bundles.import_missing(None) == 1
    assert capsys.readouterr().err.count(str(damaged)) == 1
    monkeypatch.setattr(places, "published_folder", lambda: tmp_path)
    shutil.copy(published.RESULTS, tmp_path)
    found = doctor.check_evidence()
    assert (str(damaged) in found.found, "git checkout" in found.fix) == (not is_listed,) * 2


@pytest.mark.parametrize("table", ["books", "workflow_status"])
def test_a_database_of_something_else_is_no_schedule_and_stays_as_it_is(
    table: str, home: Path
) -> None:
    with closing(sqlite3.connect(home / "schedule.db")) as database:
        database.execute(f"CREATE TABLE {table} (a INT)")
    before = (home / "schedule.db").read_bytes()
    with pytest.raises(UserError, match=f"tables of others: {table}.*Move away"):
        dispatch(["schedule", "list"])
    assert (home / "schedule.db").read_bytes() == before
    assert doctor.examine()["checks"][-4]["state"] == "problem"


def test_a_file_of_something_else_is_no_schedule(home: Path) -> None:
    (home / "schedule.db").write_text("junk")
    for command in ("list", "history"):
        with pytest.raises(UserError, match=r"schedule\.db: .*file is not a database"):
            dispatch(["schedule", command])


def test_a_last_line_of_something_else_is_no_journal(home: Path) -> None:
    (home / "optuna.journal").write_text("junk\n")
    for words in (["list"], ["show", "s"]):
        with pytest.raises(UserError, match=r"optuna\.journal, which has none in line 1 "):
            dispatch_tuning(words)
    assert (home / "optuna.journal").read_text() == "junk\n"
