"""Provenance: a commit with changes says so, new files among them, and the patch applies."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.errors import without_password
from pipelines.runtime import provenance


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A repository of one committed file, in the place of the project's own."""
    for words in (["init", "-q"], ["config", "user.email", "a@b.c"], ["config", "user.name", "a"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    (tmp_path / "kept.py").write_text("one = 1\n")
    (tmp_path / "RESULTS.md").write_text("# Results\n")
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    subprocess.run(["git", "commit", "-qm", "first"], cwd=tmp_path, check=True)
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    for cached in (provenance.diff, provenance.tags):
        cached.cache_clear()
    yield tmp_path
    for cached in (provenance.diff, provenance.tags):
        cached.cache_clear()


def test_a_clean_commit_has_no_patch_even_after_a_report(repository: Path) -> None:
    (repository / "RESULTS.md").write_text("# Other results\n")
    assert provenance.diff() == ""
    assert "+changes" not in provenance.tags()["commit"]


def test_the_patch_makes_the_changes_again(repository: Path) -> None:
    (repository / "kept.py").write_text("one = 2\n")
    (repository / "new.py").write_text("two = 2\n")
    patch = provenance.diff() + "\n"
    assert provenance.tags()["commit"].endswith("+changes")
    subprocess.run(["git", "checkout", "-q", "."], cwd=repository, check=True)
    (repository / "new.py").unlink()
    subprocess.run(["git", "apply", "-"], cwd=repository, input=patch, text=True, check=True)
    assert (repository / "kept.py").read_text() == "one = 2\n"
    assert (repository / "new.py").read_text() == "two = 2\n"


def test_a_file_of_any_name_and_bytes_is_a_change(repository: Path) -> None:
    (repository / "grün.py").write_text("two = 2\n")
    (repository / "notes.txt").write_bytes("grün\n".encode("latin-1"))
    assert "two = 2" in provenance.diff()
    assert "notes.txt" in provenance.diff()


def test_a_copy_without_history_says_unknown_or_what_it_is_told(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "ROOT", tmp_path.parent)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent.parent))
    monkeypatch.delenv("GIT_COMMIT", raising=False)
    assert provenance.tags()["commit"] == "unknown"
    provenance.tags.cache_clear()
    monkeypatch.setenv("GIT_COMMIT", "0123456789abcdef")  # where somebody knows it
    assert provenance.tags()["commit"] == "0123456789ab"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://u:secret@h/db", "postgresql://u:***@h/db"),
        ("--storage=postgresql://u:secret@h/db", "--storage=postgresql://u:***@h/db"),
        ("mysql://h/db?PASSWORD=secret", "mysql://h/db?PASSWORD=***"),
        ("mysql://h/db?ssl_key_password=secret&a=b", "mysql://h/db?ssl_key_password=***&a=b"),
        ("postgresql://h/db?a=b&sslpassword=secret", "postgresql://h/db?a=b&sslpassword=***"),
        ("grpc://h:13000", "grpc://h:13000"),
    ],
)
def test_the_command_is_kept_without_its_password(
    url: str, said: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "tuning", "run", "a:b@c", url])
    assert without_password(url) == said
    words = provenance.tags()["mlflow.source.name"].replace("'", "")
    assert words == f"tuning run a:b@c {said}"
