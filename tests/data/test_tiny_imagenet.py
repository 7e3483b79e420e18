"""Tiny ImageNet: an archive is read, whole or unpacked, and what is wrong with it is said."""

import functools
import io
import shutil
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipelines.data import datasets, tiny_imagenet
from pipelines.errors import Unavailable, UserError
from tests.conftest import PREPARED, needs

WNIDS = [f"n{i:08d}" for i in range(900, 1_100)]
GREY, LEFT_OUT, TWICE = "n00000901_0.JPEG", "n00000907_1.JPEG", "n00000950_0.JPEG"
NAMES = ("tiny-imagenet", "tiny-imagenet32")


def jpeg(rng: np.random.Generator, mode: str = "RGB", side: int = 64) -> bytes:
    """Return smooth noise as a JPEG, with the chroma at half the resolution, as cameras do."""
    shape = (16, 16) if mode == "L" else (16, 16, 3)
    noise = Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8))
    file = io.BytesIO()
    noise.resize((side, side), Image.Resampling.BICUBIC).save(file, "JPEG", quality=75)
    return file.getvalue()


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive's folder, with two training pictures and a labelled one for testing a class."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("unpacked") / tiny_imagenet.FOLDER
    (folder / "val/images").mkdir(parents=True)
    (folder / "test/images").mkdir(parents=True)
    (folder / "test/images/test_0.JPEG").write_bytes(jpeg(rng))
    annotations = []
    for number, wnid in enumerate(reversed(WNIDS)):
        images = folder / "train" / wnid / "images"
        images.mkdir(parents=True)
        (images.parent / f"{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t0\t62\t62\n")
        for name in (f"{wnid}_0.JPEG", f"{wnid}_1.JPEG"):
            (images / name).write_bytes(jpeg(rng, "L" if name == GREY else "RGB"))
        (folder / f"val/images/val_{number}.JPEG").write_bytes(jpeg(rng))
        annotations.append(f"val_{number}.JPEG\t{wnid}\t0\t0\t62\t62\n")
    (folder / "val/val_annotations.txt").write_text("".join(annotations))
    (folder / "wnids.txt").write_text("\n".join(rng.permutation(WNIDS)))
    words = [f"{wnid}\tthing {wnid}, object\n" for wnid in ["n00000001", *WNIDS]]
    (folder / "words.txt").write_text("".join(words))
    training = {path.name: path for path in folder.glob("train/*/images/*")}
    shutil.copy(folder / "val/images/val_0.JPEG", training[LEFT_OUT])
    shutil.copy(training[TWICE], training["n00000951_0.JPEG"])
    return folder


@pytest.fixture(scope="module")
def zipped(unpacked: Path) -> Path:
    base = unpacked.parent / tiny_imagenet.FOLDER
    return Path(shutil.make_archive(str(base), "zip", unpacked.parent, tiny_imagenet.FOLDER))


@pytest.fixture(scope="module", params=["folder", "archive"])
def prepared(
    request: pytest.FixtureRequest,
    unpacked: Path,
    zipped: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """A data folder, in force, in which both sizes were prepared from what a person put there."""
    home = tmp_path_factory.mktemp("home")
    by_hand = home / "downloads/manual"
    by_hand.mkdir(parents=True)
    if request.param == "folder":
        (by_hand / unpacked.name).symlink_to(unpacked)
    else:
        shutil.copy(zipped, by_hand)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFDS_DATA_DIR", str(home))
        for name in NAMES:
            datasets.get(name).prepare()
        yield


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def test_every_picture_is_there_as_pillow_reads_it(prepared: None, unpacked: Path) -> None:
    splits = datasets.load("tiny-imagenet")
    assert (splits.classes, splits.input_shape) == (200, (64, 64, 3))
    assert (len(splits.train), len(splits.val), len(splits.test)) == (359, 40, 200)
    expected = {
        (pixels(path).tobytes(), WNIDS.index(path.parts[-3]))
        for path in unpacked.glob("train/*/images/*.JPEG")
        if path.name != LEFT_OUT
    }
    parts = (splits.train, splits.val)
    found = [(x.tobytes(), y) for p in parts for x, y in zip(p.images, p.labels, strict=True)]
    assert len(found) == len(expected) == 399  # one picture stands under two classes
    assert set(found) == expected
    annotations = (unpacked / "val/val_annotations.txt").read_text()
    rows = [line.split("\t") for line in annotations.splitlines()]
    tests = {
        (pixels(unpacked / "val/images" / name).tobytes(), WNIDS.index(wnid))
        for name, wnid, *_ in rows
    }
    test = splits.test
    assert {(x.tobytes(), y) for x, y in zip(test.images, test.labels, strict=True)} == tests


def test_a_grey_picture_has_three_equal_channels(prepared: None, unpacked: Path) -> None:
    splits = datasets.load("tiny-imagenet")
    images = np.concatenate([splits.train.images, splits.val.images])
    grey = images[(np.ptp(images.astype(int), axis=-1) == 0).all(axis=(1, 2))]
    with Image.open(unpacked / "train/n00000901/images" / GREY) as image:
        assert image.mode == "L"
        np.testing.assert_array_equal(grey[..., 0], np.asarray(image)[None])


def test_half_the_size_is_the_mean_of_blocks(prepared: None) -> None:
    whole, half = (datasets.load(name) for name in NAMES)
    assert half.input_shape == (32, 32, 3)
    for part in ("train", "val", "test"):
        one, other = getattr(whole, part), getattr(half, part)
        np.testing.assert_array_equal(one.labels, other.labels)  # the same order
        blocks = one.images.reshape(len(one), 32, 2, 32, 2, 3).mean(axis=(2, 4))
        assert np.abs(blocks - other.images).max() <= 0.5


def test_the_stored_order_mixes_the_classes(prepared: None) -> None:
    splits = datasets.load("tiny-imagenet")
    assert len(set(splits.val.labels.tolist())) > 30  # of 40, from all over
    assert np.mean(np.diff(splits.train.labels) > 0) < 0.6


def test_both_sizes_are_packed_like_other_pictures(prepared: None) -> None:
    for name in NAMES:
        digest = datasets.load(name).digest
        file = datasets.get(name).pack()
        found = datasets.get(name).check(required=True)
        assert (found["state"], found["train"], found["test"]) == ("packed", 359, 200)
        assert datasets.load(name).digest == digest
        file.unlink()


def by_hand(home: Path, source: Path) -> Path:
    """Put a file or a folder of ours where a person puts the archive."""
    place = home / "downloads/manual" / source.name
    place.parent.mkdir(parents=True)
    shutil.copytree(source, place) if source.is_dir() else shutil.copy(source, place)
    return place


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "home"))
    return (tmp_path / "home").resolve()


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("wnids.txt", b"n00000900\n", "wnids.txt names 1 classes, not 200"),
        ("words.txt", None, "No such file"),
        ("val/images/val_7.JPEG", b"GIF89a", "cannot identify image file"),
        ("train/n00000900/images/n00000900_0.JPEG", "small", "n00000900_0.JPEG has 32x32 pixels"),
    ],
)
def test_a_folder_that_is_another_is_one_sentence(
    file: str, content: bytes | str | None, says: str, unpacked: Path, empty: Path
) -> None:
    place = by_hand(empty, unpacked)
    if content is None:
        (place / file).unlink()
    else:
        small = jpeg(np.random.default_rng(0), side=32)
        (place / file).write_bytes(content if isinstance(content, bytes) else small)
    with pytest.raises(UserError, match=rf"Received: {place}: .*{says}"):
        datasets.get("tiny-imagenet").prepare()
    assert datasets.get("tiny-imagenet").check()["state"] == "not prepared"


def test_an_archive_that_was_cut_off_is_one_sentence(zipped: Path, empty: Path) -> None:
    place = by_hand(empty, zipped)
    place.write_bytes(place.read_bytes()[:-1_000])
    with pytest.raises(UserError, match=r"must be tiny-imagenet-200.zip of http.* not a zip file"):
        datasets.get("tiny-imagenet").prepare()


@pytest.fixture
def server(zipped: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve the archive on loopback, in place of Stanford."""
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(zipped.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{serving.server_port}/{zipped.name}"
        monkeypatch.setattr(tiny_imagenet, "URL", url)
        yield url
        serving.shutdown()


def test_the_archive_is_downloaded_where_none_is_at_hand(server: str, empty: Path) -> None:
    datasets.get("tiny-imagenet").prepare()
    found = datasets.get("tiny-imagenet").check(required=True)
    assert [found[part] for part in ("train", "val", "test")] == [359, 40, 200]


def test_another_archive_than_stanfords_is_refused(
    server: str, empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipelines.data import builders

    (known,) = builders.TinyImageNet.url_infos.values()
    monkeypatch.setattr(builders.TinyImageNet, "url_infos", {server: known})
    with pytest.raises(Unavailable, match=r"could not be downloaded.*downloads/manual"):
        datasets.get("tiny-imagenet").prepare()


def test_where_it_cannot_be_downloaded_a_person_can_fetch_it(
    server: str, empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = server.replace(".zip", "-gone.zip")
    monkeypatch.setattr(tiny_imagenet, "URL", gone)
    with pytest.raises(Unavailable, match=rf"when {gone} can be reached, or put that file"):
        datasets.get("tiny-imagenet").prepare()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("tiny-imagenet32", marks=needs("tiny_imagenet/32x32")),
        pytest.param("tiny-imagenet", marks=[needs("tiny_imagenet/64x64"), pytest.mark.slow]),
    ],
)
def test_the_real_one_is_as_its_card_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(PREPARED))
    splits = datasets.load(name)
    assert (len(splits.train), len(splits.val), len(splits.test)) == (89_994, 9_999, 10_000)
    assert np.bincount(splits.test.labels).tolist() == [50] * 200
    training = np.concatenate([splits.train.labels, splits.val.labels])
    counts = np.bincount(training)
    assert (counts.sum(), len(counts), counts.max()) == (99_993, 200, 500)
    assert 500 * 200 - counts.sum() == 7
    assert np.bincount(splits.val.labels, minlength=200).min() > 20
    # Those that are stored grey, 1,821 and 168, and some in colour whose channels are equal.
    assert count_grey(splits.train.images) + count_grey(splits.val.images) == 1_937
    assert count_grey(splits.test.images) == 187
    # Another project's channel means of all 100,000 training pictures: 0.4802, 0.4481, 0.3975.
    assert splits.train.mean == pytest.approx([0.4802, 0.4481, 0.3975], abs=0.002)


def count_grey(images: np.ndarray) -> int:
    parts = np.array_split(images, 20)
    equal = [(x[..., :1] == x[..., 1:]).all(axis=(1, 2, 3)).sum() for x in parts]
    return int(sum(equal))
