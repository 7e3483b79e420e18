"""Data sets: the cut into three parts, determinism, and the sentence for what is not there."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import pytest

from pipelines.cli import data_command
from pipelines.data import datasets
from pipelines.data.datasets import Splits
from pipelines.data.own.stored import OwnPictures
from pipelines.data.splits import Pictures
from pipelines.data.streamed import Photographs
from pipelines.errors import Unavailable, UserError
from pipelines.running import code_digest
from tests.conftest import ROOT, needs

SIZES = {"digits": (1078, 269, 450), "synthetic": (1800, 200, 500)}
DOWNLOADED = [
    name
    for name, (kind, *_) in datasets.DATASETS.items()
    if kind != datasets.SAMPLES and name not in ("digits", "synthetic")
]


@pytest.fixture(scope="module")
def embedded_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder, empty at first, which the embedded sets share."""
    return tmp_path_factory.mktemp("embedded")


@pytest.fixture(params=SIZES)
def embedded(
    request: pytest.FixtureRequest, embedded_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Splits:
    """An embedded data set, generated on first use."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(embedded_folder))
    return datasets.load(request.param)


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, in force."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    return tmp_path.resolve()


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No socket can be opened, no name resolved."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        pytest.fail("the network was touched")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def sizes(splits: Splits) -> tuple[int, int, int]:
    return len(splits.train), len(splits.val), len(splits.test)


def same(one: Pictures, other: Pictures) -> bool:
    return np.array_equal(one.images, other.images) and np.array_equal(one.labels, other.labels)


def stored(name: str, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of a stored split, as tensorflow-datasets alone reads them."""
    import tensorflow_datasets as tfds

    version = next((datasets.data_home() / name).glob("*/dataset_info.json")).parent
    examples = tfds.as_numpy(tfds.builder_from_directory(version).as_dataset(split=split))
    images, labels = zip(*((e["image"], e["label"]) for e in examples), strict=True)
    return np.stack(images), np.array(labels)


def test_embedded_sets_are_prepared_on_first_use(embedded: Splits) -> None:
    assert sizes(embedded) == SIZES[embedded.name]
    assert datasets.get(embedded.name).check(required=True)["prepared"]


def test_parts_are_bytes_with_labels_of_every_class(embedded: Splits) -> None:
    shape, classes = datasets.get(embedded.name).sizes({})
    assert (embedded.classes, embedded.input_shape) == (classes, shape)
    for part in (embedded.train, embedded.val, embedded.test):
        assert part.images.dtype == np.uint8
        assert part.images.shape == (len(part), *shape)
        assert part.images.max() == 255  # the whole range of a byte is used
        assert part.labels.dtype == np.int64
        assert set(part.labels.tolist()) == set(range(classes))


def test_train_and_validation_are_the_stored_training_split_cut_in_two(embedded: Splits) -> None:
    images, labels = stored(embedded.name, "train")
    cut = len(embedded.train)
    np.testing.assert_array_equal(embedded.train.images, images[:cut])
    np.testing.assert_array_equal(embedded.train.labels, labels[:cut])
    np.testing.assert_array_equal(embedded.val.images, images[cut:])
    np.testing.assert_array_equal(embedded.val.labels, labels[cut:])
    np.testing.assert_array_equal(embedded.test.images, stored(embedded.name, "test")[0])


def test_pixels_are_standardized_unless_a_recipe_says_otherwise(embedded: Splits) -> None:
    x, _ = embedded.train.take(slice(None))
    np.testing.assert_allclose(x.mean(axis=(0, 1, 2), dtype=float), 0, atol=1e-4)
    np.testing.assert_allclose(x.std(axis=(0, 1, 2), dtype=float), 1, atol=1e-4)
    splits = datasets.load(embedded.name, data_args={"standardized": False})
    for part in (splits.train, splits.val, splits.test):
        plain, _ = part.take(slice(None))
        np.testing.assert_allclose(plain, part.images / 255, rtol=1e-6)


def test_digits_are_each_of_scikit_learns_once(digits: Path) -> None:
    from sklearn.datasets import load_digits

    splits, source = datasets.load("digits"), load_digits()
    found: Counter[tuple[bytes, int]] = Counter()
    for part in (splits.train, splits.val, splits.test):
        levels = np.round(part.images.reshape(-1, 64) * (16 / 255))  # grey levels 0..16 again
        found.update((x.tobytes(), int(y)) for x, y in zip(levels, part.labels, strict=True))
    pairs = zip(source.data, source.target, strict=True)
    assert found == Counter((x.tobytes(), int(y)) for x, y in pairs)
    assert found.total() == sum(sizes(splits)) == 1797


def test_preparing_again_gives_the_same_arrays(
    embedded: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    again = datasets.load(embedded.name)
    for part in ("train", "val", "test"):
        assert same(getattr(again, part), getattr(embedded, part))
    assert again.digest == embedded.digest


def test_train_examples_takes_the_first_ones(digits: Path) -> None:
    few, all_of_them = datasets.load("digits", train_examples=100), datasets.load("digits")
    assert sizes(few) == (100, 269, 450)
    np.testing.assert_array_equal(few.train.images, all_of_them.train.images[:100])
    np.testing.assert_array_equal(few.train.labels, all_of_them.train.labels[:100])
    assert same(few.val, all_of_them.val)
    assert same(few.test, all_of_them.test)
    assert few.digest != all_of_them.digest
    assert sizes(datasets.load("digits", train_examples=5_000)) == SIZES["digits"]


def test_every_part_is_standardized_by_the_training_part(digits: Path) -> None:
    splits = datasets.load("digits", train_examples=50)
    pixels = splits.train.images / 255
    for part in (splits.train, splits.val, splits.test):
        assert part.mean == pytest.approx(pixels.mean(axis=(0, 1, 2)), rel=1e-6)
        assert part.std == pytest.approx(pixels.std(axis=(0, 1, 2)), rel=1e-6)


@pytest.mark.parametrize("name", DOWNLOADED)
def test_missing_data_is_one_sentence_with_the_command_and_no_network(
    name: str, nothing: Path, offline: None
) -> None:
    for ask in (datasets.load, lambda name: datasets.get(name).check(required=True)):
        with pytest.raises(UserError) as caught:
            ask(name)
        assert f"none in {nothing}." in str(caught.value)
        assert str(caught.value).endswith(
            f"python -m pipelines data prepare {name} --data-dir {nothing}"
        )
    assert list(nothing.iterdir()) == []


@pytest.mark.parametrize("ask", [datasets.load, lambda name: datasets.get(name).prepare()])
def test_imagenet_names_its_two_archives_and_where_they_go(
    ask: Any, nothing: Path, offline: None
) -> None:
    with pytest.raises(UserError) as caught:
        ask("imagenet2012")
    assert "ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar" in str(caught.value)
    assert f"into {nothing}/downloads/manual" in str(caught.value)


def test_check_says_what_is_there(nothing: Path, offline: None) -> None:
    assert datasets.get("cifar10").check() == {
        "name": "cifar10",
        "prepared": False,
        "state": "not prepared",
    }
    assert datasets.get("digits").check(required=True)["state"] == "on first use"
    assert list(nothing.iterdir()) == []


def test_check_counts_a_prepared_set(digits: Path, offline: None) -> None:
    found = datasets.get("digits").check(required=True)
    assert (found["prepared"], found["version"]) == (True, "1.0.1")
    assert (found["train"], found["val"], found["test"]) == SIZES["digits"]
    assert Path(found["folder"]).is_relative_to(digits)
    assert sizes(datasets.load("digits")) == SIZES["digits"]


def test_a_data_set_being_written_is_not_taken_for_a_prepared_one(nothing: Path) -> None:
    # tensorflow-datasets writes here, and renames the folder to 3.0.2 when all is written.
    unfinished = nothing / "cifar10" / "incomplete.2Q3XK7_3.0.2"
    unfinished.mkdir(parents=True)
    (unfinished / "dataset_info.json").write_text("{}")
    assert datasets.get("cifar10").check()["prepared"] is False


def test_the_newest_version_that_is_finished_is_read(own: Path) -> None:
    for version in ("9.0.0", "10.0.0", "10.0.0.incompleteX4F2A"):
        shutil.copytree(own / "digits/1.0.1", own / "digits" / version)
    (own / "digits/10.0.0.incompleteX4F2A/features.json").unlink()
    assert datasets.get("digits").check()["folder"] == str(own / "digits/10.0.0")


@pytest.mark.parametrize(
    "case",
    [
        (None, "No such file .*features.json"),  # until version 3.2 of tensorflow-datasets
        ("[", "Expecting value"),
        ('{"featuresDict": {"x": {"pythonClassName": "marker.X"}}}', "features.json names marker"),
        ('{"pythonClassName": "tensorflow_datasets.core.features.no.Such"}', "Unrecognized"),
    ],
)
def test_features_that_cannot_be_read_are_one_sentence_and_no_module_is_imported(
    case: tuple[str | None, str],
    own: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    features, says = case
    (own / "marker.py").write_text("")
    monkeypatch.syspath_prepend(own)
    file = own / "digits/1.0.1/features.json"
    file.unlink() if features is None else file.write_text(features)
    for ask in (datasets.load, lambda name: datasets.get(name).check()):
        with pytest.raises(UserError, match=rf"Received: {file.parent}: .*{says}.* Delete this f"):
            ask("digits")
    data_command.data_command(["list", "--json"])  # the others are listed all the same
    rows = {row["name"]: row["state"] for row in json.loads(capsys.readouterr().out)}
    assert (rows["digits"], rows["synthetic"]) == ("unreadable", "on first use")
    assert "marker" not in sys.modules


def test_an_empty_name_of_the_data_folder_is_none_and_a_bucket_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TFDS_DATA_DIR", "")
    assert datasets.data_home() == tmp_path / "tensorflow_datasets"
    monkeypatch.setenv("TFDS_DATA_DIR", "~/x")
    assert datasets.data_home() == tmp_path / "x"
    for bucket in ("gs://bucket/data", str(Path("s3://bucket/data"))):
        monkeypatch.setenv("TFDS_DATA_DIR", bucket)
        with pytest.raises(UserError, match=f"folder of this machine. Received: {bucket[:4]}"):
            datasets.data_home()


NOBODY = """
import pwd, runpy, sys
def nobody(number):
    raise KeyError(number)
pwd.getpwuid = nobody  # as where the number of the user has no account
runpy.run_module("pipelines", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["list"], 0, ""),
        (["recover"], 0, "0 settled"),  # which imports MLflow
        (["data", "check", "digits"], 2, "error: The folder of prepared data must be known. "),
    ],
)
def test_a_user_without_a_home_is_asked_for_the_data_folder_where_data_are_needed(
    words: list[str], code: int, says: str, home: Path
) -> None:
    environment = {key: os.environ[key] for key in os.environ.keys() - {"HOME", "TFDS_DATA_DIR"}}
    done = subprocess.run(
        [sys.executable, "-c", NOBODY, *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert says in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_drawn_in_memory_is_always_there(nothing: Path, offline: None) -> None:
    found = datasets.get("linear-teacher").check(required=True)
    assert (found["prepared"], found["state"]) == (True, "generated")
    assert (found["train"], found["val"], found["test"]) == sizes(datasets.load("linear-teacher"))
    with pytest.raises(UserError, match=r"Only stored .* Received: linear-teacher"):
        datasets.get("linear-teacher").prepare()
    assert list(nothing.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("digits", r"Choices: standardized, whitened\."),
        ("linear-teacher", r"Did you mean noise\? Choices: .* gamma"),
    ],
)
def test_unknown_data_arguments_list_the_near_ones(name: str, choices: str, nothing: Path) -> None:
    with pytest.raises(UserError, match=rf"argument of {name} .*Received: 'noice'.*{choices}"):
        datasets.load(name, data_args={"noice": 0.0})


def test_the_digest_of_training_code_follows_every_kind() -> None:
    kinds = {f"pipelines.data.{kind.partition('.')[0]}" for kind, *_ in datasets.DATASETS.values()}
    kinds.add(OwnPictures.__module__)
    assert kinds == set(code_digest.FOUND_BY_NAME["pipelines.data.datasets"])


@pytest.mark.parametrize("ask", [datasets.load, datasets.get])
def test_unknown_names_list_the_near_ones(ask: Any, nothing: Path) -> None:
    with pytest.raises(UserError) as caught:
        ask("cifar11")
    assert "Received: 'cifar11'. Did you mean cifar10" in str(caught.value)
    assert str(caught.value).endswith("All: python -m pipelines data")


@pytest.mark.parametrize(
    ("available", "train_examples"),
    [
        (100_000, None),  # 1,797 digits of 64 bytes are 115,008
        (40_000, 1),  # the 719 of validation and test alone are 46,016
    ],
)
def test_data_that_cannot_fit_is_refused(
    available: int, train_examples: int | None, digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psutil

    memory = SimpleNamespace(available=available)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    with pytest.raises(Unavailable, match=r"must fit in memory\. Received: .* of digits"):
        datasets.load("digits", train_examples)
    memory.available = 100_000  # fewer fit
    assert sizes(datasets.load("digits", train_examples=100)) == (100, 269, 450)


def store(folder: Path, name: str, version: str, shape: Any, parts: Any, **more: Any) -> None:
    """Prepare a data set of a thousand classes, as tensorflow-datasets does."""
    import tensorflow_datasets as tfds

    image, label = tfds.features.Image(shape=shape), tfds.features.ClassLabel(num_classes=1000)
    tfds.disable_progress_bar()
    tfds.dataset_builders.store_as_tfds_dataset(
        name=name,
        version=version,
        data_dir=folder,
        features=tfds.features.FeaturesDict({"image": image, "label": label}),
        split_datasets=parts,
        **more,
    )


def png(path: Path, pixels: np.ndarray) -> str:
    import tensorflow as tf

    path.write_bytes(tf.io.encode_png(pixels).numpy())
    return str(path)


@pytest.fixture
def photographs(nothing: Path, tmp_path_factory: pytest.TempPathFactory) -> list[np.ndarray]:
    """The five pictures of a small imagenet2012's test part; its training part is of one colour."""
    rng = np.random.default_rng(0)
    shapes = [(256, 448, 3), (301, 256, 3), (256, 300, 1), (50, 80, 3), (1400, 1060, 3)]
    pictures = [rng.integers(0, 256, shape, dtype=np.uint8) for shape in shapes]
    folder = tmp_path_factory.mktemp("png")
    tests = [png(folder / f"{i}.png", picture) for i, picture in enumerate(pictures)]
    plain = np.full((90, 120, 3), (17, 100, 203), np.uint8)
    parts = {"train": [png(folder / "plain.png", plain)] * 100, "validation": tests}
    examples = {
        split: [(i, {"image": path, "label": i}) for i, path in enumerate(paths)]
        for split, paths in parts.items()
    }
    store(nothing, "imagenet2012", "5.1.0", (None, None, 3), examples)
    return pictures


def pixels(split: Photographs) -> dict[int, np.ndarray]:
    """The test pictures as the network reads them, scaled to 0..255 again, by label."""
    (x, y, _), *_ = split.eval_dataset(len(split))
    images = (x.numpy() * split.std + split.mean) * 255
    return dict(zip(y.numpy().tolist(), images, strict=True))


def test_photographs_stay_on_disk_and_are_cut_to_one_size(
    photographs: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    import psutil

    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=0))
    splits = datasets.load("imagenet2012")
    assert sizes(splits) == (99, 1, 5)
    assert splits.input_shape == (224, 224, 3)
    assert "top5_error_pct" in splits.task.numbers
    cut = pixels(splits.test)
    # Where the shorter side is 256 nothing is resized: the centre is copied, grey three times.
    np.testing.assert_allclose(cut[0], photographs[0][16:240, 112:336], atol=0.01)
    np.testing.assert_allclose(cut[1], photographs[1][38:262, 16:240], atol=0.01)
    grey = photographs[2][16:240, 38:262].repeat(3, axis=2)
    np.testing.assert_allclose(cut[2], grey, atol=0.01)
    # A large picture is averaged over 4 x 4 pixels, not over 2 x 2.
    assert cut[4].mean() == pytest.approx(photographs[4].mean(), abs=0.3)
    assert cut[4].std() < 0.3 * photographs[4].std()
    few = datasets.load("imagenet2012", train_examples=3)
    assert sizes(few) == (3, 1, 5)
    for plain in pixels(few.train).values():
        np.testing.assert_allclose(plain.reshape(-1, 3), [[17, 100, 203]] * 224**2, atol=0.01)


@pytest.fixture
def imagenet32(nothing: Path) -> np.ndarray:
    """The 103 pictures of a small imagenet_resized/32x32: 100 in train, 3 in validation."""
    import tensorflow as tf

    pictures = np.random.default_rng(0).integers(0, 256, (103, 32, 32, 3), dtype=np.uint8)
    labels = np.r_[np.arange(100) % 10, 997, 998, 999]
    parts = {
        split: tf.data.Dataset.from_tensor_slices({"image": pictures[part], "label": labels[part]})
        for split, part in (("train", slice(0, 100)), ("validation", slice(100, 103)))
    }
    store(nothing, "imagenet_resized", "0.1.1", (32, 32, 3), parts, config="32x32")
    return pictures


def test_imagenet32_is_tested_on_its_validation_part(
    imagenet32: np.ndarray, nothing: Path, offline: None
) -> None:
    splits = datasets.load("imagenet32")
    assert sizes(splits) == (99, 1, 3)
    assert (splits.classes, splits.input_shape) == (1000, (32, 32, 3))
    assert "top5_error_pct" in splits.task.numbers
    assert sorted(splits.test.labels.tolist()) == [997, 998, 999]
    order = stored("imagenet_resized/32x32", "train")[0]
    np.testing.assert_array_equal(splits.train.images, order[:99])
    np.testing.assert_array_equal(splits.val.images, order[99:])
    by_label = splits.test.images[np.argsort(splits.test.labels)]
    np.testing.assert_array_equal(by_label, imagenet32[100:])
    found = datasets.get("imagenet32").check(required=True)
    assert [found[part] for part in ("train", "val", "test")] == [99, 1, 3]
    datasets.get("imagenet32").pack()
    assert datasets.get("imagenet32").check()["state"] == "packed"
    packed = datasets.load("imagenet32")
    assert all(same(getattr(packed, k), getattr(splits, k)) for k in ("train", "val", "test"))


@needs("mnist")
def test_mnist() -> None:
    splits = datasets.load("mnist", train_examples=10_000)
    assert sizes(splits) == (10_000, 6_000, 10_000)
    assert splits.input_shape == (28, 28, 1)
    # Digits are white on black, about a fifth of the pixels; the published mean is 0.1307.
    assert splits.train.mean == pytest.approx([0.1307], abs=0.003)
    counts = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert np.bincount(splits.test.labels).tolist() == counts


@needs("cifar10")
def test_cifar10() -> None:
    splits = datasets.load("cifar10")
    assert sizes(splits) == (45_000, 5_000, 10_000)
    assert splits.input_shape == (32, 32, 3)
    assert np.bincount(splits.test.labels).tolist() == [1_000] * 10
    both = np.concatenate([splits.train.labels, splits.val.labels])
    assert np.bincount(both).tolist() == [5_000] * 10
    # The known channel moments of the 50,000 training images.
    assert splits.train.mean == pytest.approx([0.4914, 0.4822, 0.4465], abs=0.002)
    assert splits.train.std == pytest.approx([0.2470, 0.2435, 0.2616], abs=0.002)


@needs("imagenet2012")
def test_imagenet() -> None:
    splits = datasets.load("imagenet2012", train_examples=100)
    assert splits.input_shape == (224, 224, 3)
    assert len(splits.train) == 100
    ((x, y),) = splits.train.train_dataset(range(0, 1), 32, 0)
    assert 0 <= y.numpy().min() < y.numpy().max() < 1000
    assert x.numpy().std(axis=(1, 2)).min() > 0  # photographs, none of one colour
    assert x.numpy().mean(axis=(0, 1, 2)) == pytest.approx([0, 0, 0], abs=0.5)
    assert x.numpy().std(axis=(0, 1, 2)) == pytest.approx([1, 1, 1], abs=0.3)
