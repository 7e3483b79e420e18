"""The check of all data sets: what is damaged is named, what is whole or not there is not."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.cli import data_command
from pipelines.data import datasets
from tests.conftest import needs


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_all_that_is_there_is_checked(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data_command.check_command(json=True)
    found = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in found["data"]}
    assert rows.keys() == datasets.DATASETS.keys()
    assert rows["digits"] == datasets.get("digits").check()
    assert (rows["cifar10"]["state"], found["unreadable"]) == ("not prepared", [])


@pytest.mark.parametrize("damage", [halved, Path.unlink])
@pytest.mark.parametrize("part", ["train.tfrecord*", "test.tfrecord*", "features.json"])
def test_what_is_damaged_is_named_in_a_sentence(
    damage: Callable[[Path], None], part: str, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own / "mnist.npz").write_text("no data")
    damage(next((own / "digits").rglob(f"*{part}")))
    with pytest.raises(SystemExit) as ended:
        data_command.check_command(json=True)
    said = capsys.readouterr()
    assert ended.value.code == 1
    assert json.loads(said.out)["unreadable"] == ["digits", "mnist"]
    assert said.err.startswith("error: Data that are there must be readable. Received: digits: ")
    assert "; mnist: A packed data file must hold mnist" in said.err
    assert said.err.count("\n") == 1


@needs("imagenet2012")
def test_photographs_are_decoded() -> None:
    assert datasets.get("imagenet2012").check(required=True)["state"] == "prepared"
