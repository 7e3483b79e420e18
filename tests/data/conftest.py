"""Data folders of a test's own."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def own(prepared_digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of this test's own, with digits prepared."""
    shutil.copytree(prepared_digits / "digits", tmp_path / "digits")
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    return tmp_path.resolve()
