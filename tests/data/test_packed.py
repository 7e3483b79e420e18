"""Packed data sets: the same splits as those prepared, read by NumPy alone, checked."""

import hashlib
import io
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pipelines.data import datasets, packed
from pipelines.data.datasets import Splits
from pipelines.data.pictures import StoredPictures
from pipelines.errors import UserError
from pipelines.recipes import checks
from pipelines.recipes.catalog import get_recipe
from pipelines.running.run import run
from pipelines.tracking import history
from tests.conftest import PREPARED, ROOT, needs


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
    assert (found["state"], found["version"]) == ("packed", "1.0.1")
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


def with_arrays(file: Path, **arrays: np.ndarray) -> None:
    """The archive with other arrays, under right checksums."""
    with zipfile.ZipFile(file) as archive:
        about = json.loads(archive.read("about.json"))
    for key, array in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, array)
        rewritten(file, f"{key}.npy", buffer.getvalue())
        about["sha256"][key] = hashlib.sha256(array.tobytes()).hexdigest()
    rewritten(file, "about.json", json.dumps(about).encode())


LABELS = np.arange(450) % 10
WRONG = {
    "too few": ({"test_labels": LABELS[:-1]}, r"test images .*\) and labels int64 \(449,\), where"),
    "negative": ({"test_labels": LABELS - 1}, "test_labels from -1 to 8, where classes are 0 to 9"),
    "too large": ({"test_labels": LABELS + 1}, "test_labels from 1 to 10, where classes are 0"),
    "fractions": ({"test_labels": LABELS / 1}, "test images .* and labels float64"),
    "one-hot": ({"test_labels": np.eye(10, dtype=int)[LABELS]}, r"test images .*\(450, 10\)"),
    "none": (
        {"test_labels": LABELS[:0], "test_images": np.zeros((0, 8, 8, 1), np.uint8)},
        "test images uint8",
    ),
    "another size": ({"test_images": np.zeros((450, 9, 9, 1), np.uint8)}, r".*where uint8 \(n, \*"),
    "fractions of pixels": ({"test_images": np.zeros((450, 8, 8, 1))}, "test images float64"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_labels_that_are_not_those_of_the_pictures_are_refused_before_a_run_is_opened(
    kind: str, own: Path, home: Path
) -> None:
    arrays, says = WRONG[kind]
    with_arrays(datasets.get("digits").pack(), **arrays)
    recipe = get_recipe("mlp-digits", "smoke")
    for ask in (
        datasets.get("digits").check,
        lambda: checks.check_here(recipe),
        lambda: run(recipe),
    ):
        with pytest.raises(UserError, match=rf"digits\.npz: not a packed data set \({says}"):
            ask()
    assert history.rows(None) == []


@pytest.mark.parametrize(
    "about", [b"[" * 100_000, b"[]", b"{}", b'{"sha256": {}}', b'{"sha256": []}', b"\xff"]
)
def test_a_description_of_another_kind_is_one_sentence(about: bytes, own: Path) -> None:
    rewritten(datasets.get("digits").pack(), "about.json", about)
    with pytest.raises(UserError, match="not a packed data set"):
        datasets.load("digits")


def test_an_array_in_the_place_of_the_archive_is_one_sentence(own: Path) -> None:
    with (own / "digits.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    for ask in (datasets.load, lambda name: datasets.get(name).examples({})):
        with pytest.raises(UserError, match="not a packed data set"):
            ask("digits")


@pytest.mark.parametrize("name", ["imagenet2012", "linear-teacher"])
def test_only_arrays_are_packed(name: str, own: Path) -> None:
    with pytest.raises(UserError, match=f"fit in memory are packed. Received: {name}"):
        datasets.get(name).pack()


def test_a_folder_that_cannot_be_written_is_one_sentence(own: Path) -> None:
    part = np.zeros((1, 8, 8, 1), np.uint8), np.zeros(1, np.int64)
    with pytest.raises(UserError, match="must be writable"):
        packed.write(own / "none" / "digits.npz", "digits", "1.0.0", 10, [part, part])


@pytest.mark.parametrize("percent", [1, 10, 20])
def test_the_cut_is_tensorflow_datasets_own(percent: int) -> None:
    import tensorflow_datasets as tfds

    row = StoredPictures("any", "any", 10, (1, 1, 1), percent)
    for count in [*range(60, 400), 50_000, 60_000, 1_281_167]:
        (_, train), (_, val), _ = row.cuts(lambda _, count=count: count)
        spec = tfds.core.ReadInstruction.from_spec(f"train[:{100 - percent}%]")
        (cut,) = spec.to_absolute({"train": SimpleNamespace(num_examples=count)})
        assert (train, val) == (slice(0, cut.to), slice(cut.to, count))
    (_, train), (_, val), _ = row.cuts(lambda _: 2)
    assert (train, val) == (slice(0, 1), slice(1, 2))  # never empty


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
