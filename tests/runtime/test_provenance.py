"""Provenance: a commit with changes says so, the patch applies, no untracked file is kept."""

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines import __version__
from pipelines.errors import without_password
from pipelines.runtime import places, provenance


def make_repository(folder: Path, text: str) -> Path:
    """Make a repository of one committed file, and a report."""
    (folder / "kept.py").write_text(f"{text}\n")
    (folder / "RESULTS.md").write_text("# Results\n")
    identity = ["-c", "user.email=a@b.c", "-c", "user.name=a"]
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A repository of one committed file, in the place of the project's own."""
    make_repository(tmp_path, "one = 1")
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
    (repository / ".env").write_text("TOKEN=secret\n")
    patch = provenance.diff() + "\n"
    assert provenance.tags()["commit"].endswith("+changes")
    subprocess.run(["git", "checkout", "-q", "."], cwd=repository, check=True)
    subprocess.run(["git", "apply", "-"], cwd=repository, input=patch, text=True, check=True)
    assert (repository / "kept.py").read_text() == "one = 2\n"


def test_files_that_git_does_not_track_are_named_with_their_digest_and_not_kept(
    repository: Path,
) -> None:
    secret = b"TOKEN=secret \xfc\n"
    (repository / ".env").write_bytes(secret)
    (repository / "grün.py").write_text("two = 2\n")
    (repository / "gone.txt").symlink_to("nowhere")
    lines = provenance.diff().splitlines()
    assert f"# not tracked: .env  {hashlib.sha256(secret).hexdigest()}" in lines
    assert [line.split("  ")[0] for line in lines] == [
        f"# not tracked: {name}" for name in (".env", "gone.txt", "grün.py")
    ]
    assert provenance.tags()["commit"].endswith("+changes")


def test_the_repository_of_a_hook_or_of_a_folder_above_is_not_ours(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = provenance.tags()["mlflow.source.git.commit"]
    other = make_repository(tmp_path_factory.mktemp("other"), "their secret")
    for variable, place in (
        ("GIT_DIR", other / ".git"),
        ("GIT_WORK_TREE", other),
        ("GIT_INDEX_FILE", other / ".git" / "index"),
    ):
        monkeypatch.setenv(variable, str(place))
    for cached in (provenance.diff, provenance.tags):
        cached.cache_clear()
    assert provenance.diff() == ""
    assert provenance.tags()["mlflow.source.git.commit"] == commit
    unpacked = other / "unpacked"
    unpacked.mkdir()
    monkeypatch.setattr(provenance, "ROOT", unpacked)
    for cached in (provenance.diff, provenance.tags):
        cached.cache_clear()
    assert provenance.diff() == ""
    assert provenance.tags()["commit"] == "unknown"


def test_a_copy_without_history_says_unknown_or_what_it_is_told(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "ROOT", tmp_path.parent)
    monkeypatch.delenv("GIT_COMMIT", raising=False)
    assert provenance.tags()["commit"] == "unknown"
    provenance.tags.cache_clear()
    monkeypatch.setenv("GIT_COMMIT", "0123456789abcdef")  # where somebody knows it
    assert provenance.tags()["commit"] == "0123456789ab"


@pytest.mark.parametrize(
    ("built_of", "commit"),
    [
        ("0123456789abcdef", "0123456789ab"),
        ("0123456789abcdef+changes", "0123456789ab+changes"),
        ("", __version__),
    ],
)
def test_an_installed_package_says_what_it_was_built_of(
    built_of: str, commit: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site := repository / "site").mkdir()
    (site / "COMMIT").write_text(built_of)
    monkeypatch.setattr(provenance, "ROOT", site)
    monkeypatch.setattr(places, "published_folder", lambda: site)
    monkeypatch.setattr(places, "is_checkout", lambda: False)
    monkeypatch.delenv("GIT_COMMIT", raising=False)
    tags = provenance.tags()
    assert (tags["commit"], tags["mlflow.source.git.commit"]) == (
        commit,
        (built_of or commit).removesuffix("+changes"),
    )


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("python -m pipelines run x", "pipelines run x"),
        ("python -P -m tuning work s", "tuning work s"),
        ("python /usr/bin/near-identity tune run s", "pipelines tune run s"),
        ("python script.py -m x", "script.py -m x"),
    ],
)
def test_the_command_is_kept_as_it_is_typed_after_python_m(
    typed: str, words: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "orig_argv", typed.split())
    assert provenance.tags()["mlflow.source.name"] == words


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://u:secret@h/db", "postgresql://u:***@h/db"),
        ("--storage=postgresql://u:secret@h/db", "--storage=postgresql://u:***@h/db"),
        ("mysql://h/db?PASSWORD=secret", "mysql://h/db?PASSWORD=***"),
        ("mysql://h/db?ssl_key_password=secret&a=b", "mysql://h/db?ssl_key_password=***&a=b"),
        ("postgresql://h/db?a=b&sslpassword=secret", "postgresql://h/db?a=b&sslpassword=***"),
        ("https://u:secret@h", "https://***@h"),
        ("HTTP://secret:@h/path", "HTTP://***@h/path"),
        ("http://u@secret@h", "http://***@h"),
        ("http://127.0.0.1:5000/a", "http://127.0.0.1:5000/a"),
        ("http://h/x?token=secret&b=c", "http://h/x?token=***&b=c"),
        ("http://h/x?Access_Token=secret", "http://h/x?Access_Token=***"),
        ("postgresql://u:secret", "postgresql://u:***"),
        ("postgresql://h:5432/db", "postgresql://h:5432/db"),
        ("postgresql://u%3Asecret@h/db", "postgresql://u:***@h/db"),
        ("https://secret@h/path", "https://***@h/path"),
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
