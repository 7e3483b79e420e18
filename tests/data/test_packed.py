"""Packed data sets: the same splits as those prepared, read by NumPy alone, checked."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pipelines.data import datasets, packed
from pipelines.data.pictures import StoredPictures
from pipelines.data.splits import Splits
from pipelines.errors import UserError
from tests.conftest import PREPARED, ROOT, needs


@pytest.fixture
def own(prepared_digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of this test's own, with digits prepared."""
    shutil.copytree(prepared_digits / "digits", tmp_path / "digits")
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    return tmp_path.resolve()


def same(one: Splits, other: Splits) -> bool:
    return one.digest == other.digest and all(
        np.array_equal(getattr(a, field), getattr(b, field))
        for a, b in ((one.train, other.train), (one.val, other.val), (one.test, other.test))
        for field in ("images", "labels", "mean", "std")
    )


def test_packed_and_prepared_give_the_same_splits(own: Path) -> None:
    prepared = [datasets.load("digits"), datasets.load("digits", 100)]
    file = datasets.get("digits").pack()
    assert file == own / "digits.npz"
    first = file.read_bytes()
    shutil.copy(file, own / "kept")
    assert datasets.get("digits").pack().read_bytes() == first
    shutil.rmtree(own / "digits")
    assert same(datasets.load("digits"), prepared[0])
    assert same(datasets.load("digits", 100), prepared[1])
    found = datasets.get("digits").check(required=True)
    assert (found["state"], found["version"]) == ("packed", "1.0.0")
    assert (found["train"], found["val"], found["test"]) == (1078, 269, 450)
    assert {path.name for path in own.iterdir()} == {"digits.npz", "kept"}


def test_numpy_opens_a_packed_file(own: Path) -> None:
    with np.load(datasets.get("digits").pack()) as archive:
        assert archive["train_images"].shape == (1347, 8, 8, 1)
        assert archive["train_labels"].dtype == np.int64
        assert len(archive["test_images"]) == len(archive["test_labels"]) == 450


def test_a_packed_file_needs_no_tensorflow(own: Path) -> None:
    digest = datasets.load("digits").digest
    datasets.get("digits").pack()
    code = """
import sys
sys.modules["tensorflow"] = sys.modules["tensorflow_datasets"] = None  # importing them fails
from pipelines.data import datasets
print(datasets.load("digits").digest, datasets.get("digits").check()["state"])
"""
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert found.stdout.split() == [digest, "packed"], found.stderr


def rewritten(file: Path, member: str, content: bytes) -> None:
    """The archive with another content of one member, under right checksums of its own."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w") as archive:
        for name, old in members.items():
            archive.writestr(name, content if name == member else old)


def test_damage_is_one_sentence_with_the_command(own: Path) -> None:
    file = datasets.get("digits").pack()
    whole = file.read_bytes()
    command = f"python -m pipelines data pack digits --data-dir {own}"

    def refused(says: str) -> None:
        for ask in (datasets.load, lambda name: datasets.get(name).check()):
            with pytest.raises(UserError, match=rf"Received: {file}: .*{says}") as caught:
                ask("digits")
            assert str(caught.value).endswith(command)

    file.write_bytes(whole[: len(whole) // 2])
    refused("not a packed data set")
    file.write_bytes(whole[:5_000] + bytes([whole[5_000] ^ 1]) + whole[5_001:])
    refused("not a packed data set")
    file.write_bytes(whole)
    with zipfile.ZipFile(file) as archive:
        labels = bytearray(archive.read("test_labels.npy"))
    labels[-8] ^= 1
    rewritten(file, "test_labels.npy", bytes(labels))
    refused("test_labels of another checksum")
    datasets.get("digits").pack()  # the advice helps
    datasets.load("digits")
    file.rename(own / "mnist.npz")
    with pytest.raises(UserError, match=r"must hold mnist .*: the data set digits"):
        datasets.load("mnist")


@pytest.mark.parametrize("name", ["imagenet2012", "linear-teacher"])
def test_only_arrays_are_packed(name: str, own: Path) -> None:
    with pytest.raises(UserError, match=f"fit in memory are packed. Received: {name}"):
        datasets.get(name).pack()


def test_a_folder_that_cannot_be_written_is_one_sentence(own: Path) -> None:
    stored = StoredPictures("digits", *datasets.DATASETS["digits"][1:])._open_prepared()
    with pytest.raises(UserError, match="must be writable"):
        packed.write(own / "none" / "digits.npz", "digits", 10, stored)


@pytest.mark.parametrize("percent", [1, 10, 20])
def test_the_cut_is_tensorflow_datasets_own(percent: int) -> None:
    import tensorflow_datasets as tfds

    row = StoredPictures("any", "any", 10, (1, 1, 1), percent)
    for count in [*range(60, 400), 50_000, 60_000, 1_281_167]:
        (_, train), (_, val), _ = row.cuts(lambda _, count=count: count)
        spec = tfds.core.ReadInstruction.from_spec(f"train[:{100 - percent}%]")
        (cut,) = spec.to_absolute({"train": SimpleNamespace(num_examples=count)})
        assert (train, val) == (slice(0, cut.to), slice(cut.to, count))


def test_validation_is_never_empty() -> None:
    (_, train), (_, val), _ = StoredPictures("any", "any", 10, (1, 1, 1), 1).cuts(lambda _: 20)
    assert (train, val) == (slice(0, 19), slice(19, 20))


@needs("cifar10")
def test_cifar10_packed_is_the_prepared_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    (tmp_path / "cifar10").symlink_to(PREPARED.resolve() / "cifar10")
    prepared = datasets.load("cifar10")
    datasets.get("cifar10").pack()
    (tmp_path / "cifar10").unlink()
    assert same(datasets.load("cifar10"), prepared)
