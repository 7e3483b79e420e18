"""Shared fixtures: a tracking home of its own for every test, and prepared data."""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PREPARED = Path(os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")).expanduser()
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"


def needs(name: str) -> pytest.MarkDecorator:
    """Skip, saying so, where a real data set is not prepared."""
    found = any((PREPARED / name).glob("[0-9]*.*.*/dataset_info.json"))
    return pytest.mark.skipif(not found, reason=f"{name} is not prepared in {PREPARED}")


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database without runs: copying it is ten times faster than making one."""
    from pipelines import store

    folder = tmp_path_factory.mktemp("template")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        store.client()
    return folder / "mlflow.db"


@pytest.fixture
def home(tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty tracking home, in force for this process and those it starts."""
    folder = tmp_path / "mlruns"
    folder.mkdir()
    shutil.copy(empty_database, folder / "mlflow.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
    return folder


@pytest.fixture(scope="session")
def prepared_digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder that holds the embedded digits."""
    from pipelines import data

    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFDS_DATA_DIR", str(folder))
        data.prepare("digits")
    return folder


@pytest.fixture
def digits(prepared_digits: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder with digits, in force for this process and those it starts."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(prepared_digits))
    return prepared_digits


def journals(home: Path) -> str:
    """All that running trainings have written down; one may be delivered, and go, meanwhile."""
    texts = []
    for path in home.glob("live/*.jsonl"):
        with contextlib.suppress(FileNotFoundError):
            texts.append(path.read_text())
    return "".join(texts)


def command(*arguments: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    """Run `python -m ...` in the project, as a person would."""
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
