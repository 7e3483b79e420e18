"""The check of all data sets: what is damaged is named, what is whole or not there is not."""

import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.__main__ import dispatch
from pipelines.cli import data_command, list_command
from pipelines.data import datasets
from pipelines.errors import UserError
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
    assert said.err == "error: These data sets cannot be read: digits, mnist.\n"
    found = json.loads(said.out)
    assert found["unreadable"] == ["digits", "mnist"]
    rows = {row["name"]: row for row in found["data"] if "why" in row}
    assert str(own / "mnist.npz") in rows["mnist"]["why"]
    for name, command in {"digits": "prepare", "mnist": "pack"}.items():
        assert "elete" in rows[name]["why"]
        assert f"python -m pipelines data {command} {name}" in rows[name]["why"]


def junk(path: Path) -> None:
    path.write_bytes(b"junk")


def array_in_about(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("about.json", "[1, 2]")


def foreign(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("chapter.txt", "words")


@pytest.mark.parametrize("make", [junk, array_in_about, foreign, Path.mkdir])
def test_a_foreign_file_blocks_no_listing(
    make: Callable[[Path], None], home: Path, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["cifar10", "animals-00000000"]
    for name in names:
        make(own / f"{name}.npz")
    dispatch(["data"])
    shown = capsys.readouterr().out
    for name in names:
        [said] = re.findall(rf"^{name}: .*(?:\n .*)*", shown, re.M)
        assert str(own / f"{name}.npz") in said
        assert "pickle" not in said
        assert ("data pack" in said, "by --data." in said) == (
            name == "cifar10",
            name != "cifar10",
        )
        for words in (["data", "check", name], ["run", "mlp-digits", "--data", name]):
            with pytest.raises(UserError) as caught:
                dispatch(words)
            assert ("--data." in str(caught.value)) == (name != "cifar10")
    listed = list_command.list_names()
    assert "cifar10" not in listed["data_at_hand"]
    assert dispatch(["show", "mlp-digits"]) is None
    with pytest.raises(SystemExit):
        dispatch(["data", "check"])


def test_a_damaged_set_is_named_whether_or_not_it_was(home: Path, own: Path) -> None:
    """Files of TFDS that are gone, empty, cut or folders: a sentence, and no traceback."""
    datasets.get("digits").prepare()
    [file] = own.glob("digits/*/*-test.tfrecord*")
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    for words in (["data", "check", "digits"], ["data", "check"]):
        with pytest.raises((UserError, SystemExit)):
            dispatch(words)
    file.unlink()
    with pytest.raises(UserError, match=r"must be readable\. Received: digits: "):
        dispatch(["data", "check", "digits"])


@needs("imagenet2012")
def test_photographs_are_decoded() -> None:
    assert datasets.get("imagenet2012").check(required=True)["state"] == "prepared"
