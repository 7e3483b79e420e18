"""Photographs: records by number, steps made again, crops that are where they must be."""

import io
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipelines.data import _tfrecords, datasets, streamed
from pipelines.data.streamed import MEAN, STD, Photographs
from pipelines.errors import UserError
from pipelines.training import input_pipeline
from tests.conftest import needs

SIDE, COUNT = 32, 30
SIZES = [(48, 64), (90, 60), (20, 25), (40, 40), (37, 120), (200, 50)]  # heights, widths


def smooth(i: int) -> np.ndarray:
    """A picture without sharp edges, different for each i: uint8 [h, w, 3]."""
    height, width = SIZES[i % len(SIZES)]
    down, right = np.mgrid[0 : 3 : height * 1j, 0 : 2 : width * 1j]
    waves = [np.sin(down * (1 + c) + i) * np.cos(right + c * i) for c in range(3)]
    return np.round(127.5 + 120 * np.stack(waves, -1)).astype(np.uint8)


def encoded(i: int, **options: Any) -> bytes:
    """Picture i as a file: a JPEG, now and then grey, CMYK or a PNG."""
    from PIL import Image

    mode = {3: "L", 7: "CMYK"}.get(i, "RGB")
    buffer = io.BytesIO()
    options = options or ({"format": "PNG"} if i == 11 else {"format": "JPEG", "quality": 95})
    Image.fromarray(smooth(i)).convert(mode).save(buffer, **options)
    return buffer.getvalue()


def write(path: Path, numbers: range) -> None:
    """A TFRecord file of these pictures, whose labels are their numbers."""
    import tensorflow as tf

    def feature(kind: str, value: Any) -> Any:
        lists = {"bytes": tf.train.BytesList, "int64": tf.train.Int64List}
        return tf.train.Feature(**{f"{kind}_list": lists[kind](value=[value])})

    with tf.io.TFRecordWriter(str(path)) as writer:
        for i in numbers:
            parts = {"image": feature("bytes", encoded(i)), "label": feature("int64", i)}
            example = tf.train.Example(features=tf.train.Features(feature=parts))
            writer.write(example.SerializeToString())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("records")
    paths = [folder / name for name in ("a", "b", "c")]
    for path, numbers in zip(paths, (range(12), range(12, 13), range(13, COUNT)), strict=True):
        write(path, numbers)
    return paths


COUNTS = [12, 1, 17]


@pytest.fixture(scope="module")
def split(files: list[Path]) -> Photographs:
    found = _tfrecords.index(files, COUNTS, files[0].with_name("index.npz"))
    return Photographs(found, (SIDE, SIDE, 3), MEAN, STD)


def arrays(ds: Any) -> list[tuple[np.ndarray, ...]]:
    return [tuple(part.numpy() for part in batch) for batch in ds]


def equal(one: Any, other: Any) -> bool:
    """Bit for bit, batch by batch."""
    return len(one) == len(other) and all(
        np.array_equal(x, y)
        for a, b in zip(one, other, strict=True)
        for x, y in zip(a, b, strict=True)
    )


def test_records_are_those_that_tensorflow_reads(split: Photographs, files: list[Path]) -> None:
    import tensorflow as tf

    stored = [r.numpy() for r in tf.data.TFRecordDataset([str(f) for f in files])]
    found = split.records
    assert [found.read(i) for i in range(COUNT)] == stored
    part = found[10:20][1:]
    assert [part.read(i) for i in range(len(part))] == stored[11:20]
    with pytest.raises(IndexError):
        part.read(9)
    assert len({each.digest for each in (found, part, found[:10], found[10:20])}) == 4


def test_files_are_read_beyond_those_that_stay_open(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_tfrecords, "OPEN", 1)
    found = _tfrecords.Files(files)
    for _ in range(2):
        assert [found.read(i, 8, 0) for i in range(3)] == [f.read_bytes()[:8] for f in files]


def test_the_index_is_kept_until_a_file_changes(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, cache = tmp_path / "a", tmp_path / "index.npz"
    file.write_bytes(files[0].read_bytes())
    first = _tfrecords.index([file], [12], cache)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "index.npz"}
    with monkeypatch.context() as patch:
        patch.setattr(_tfrecords, "_lengths", lambda *_: pytest.fail("indexed again"))
        assert _tfrecords.index([file], [12], cache).digest == first.digest
    file.write_bytes(files[2].read_bytes())
    assert _tfrecords.index([file], [17], cache).digest != first.digest
    cache.write_bytes(b"torn")
    assert len(_tfrecords.index([file], [17], cache)) == 17
    with cache.open("wb") as array:
        np.save(array, np.zeros(3))
    assert len(_tfrecords.index([file], [17], cache)) == 17
    assert len(_tfrecords.index([file], [17], tmp_path / "no folder" / "index.npz")) == 17


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda content: content[:-5], "12 of 12 records"),
        (lambda content: content + content[:50], "12 of 12 records"),
        (lambda content: bytes([content[0] ^ 1]) + content[1:], "record 0 of 12"),
    ],
)
def test_damaged_files_are_one_sentence(
    damage: Any, says: str, files: list[Path], tmp_path: Path
) -> None:
    file = tmp_path / "a"
    file.write_bytes(damage(files[0].read_bytes()))
    with pytest.raises(UserError, match=rf"must be whole\. Received: {file}: .*{says}"):
        _tfrecords.index([file], [12], tmp_path / "index.npz")
    assert not (tmp_path / "index.npz").exists()


def test_files_that_vanish_or_shrink_are_one_sentence(files: list[Path], tmp_path: Path) -> None:
    file = tmp_path / "a"
    with pytest.raises(UserError, match="No such file"):
        _tfrecords.index([file], [12], tmp_path / "index.npz")
    file.write_bytes(files[0].read_bytes())
    found = _tfrecords.index([file], [12], tmp_path / "index.npz")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(UserError, match="bytes of a record"):
        found.read(11)
    split = Photographs(found, (SIDE, SIDE, 3), MEAN, STD)  # whose feed says the same sentence
    with (
        pytest.raises(UserError, match=r"must be whole.*bytes of a record"),
        input_pipeline.unwrap_errors(),
    ):
        arrays(split.train_dataset(range(0, 1), 4, 5, augment=True))


def test_another_format_is_one_sentence(tmp_path: Path) -> None:
    info = SimpleNamespace(file_format=SimpleNamespace(value="array_record"))
    with pytest.raises(UserError, match=r"tfrecord format\. Received: .* array_record"):
        _tfrecords.prepared_records(SimpleNamespace(info=info, data_path=tmp_path), "train")


@pytest.mark.parametrize("augment", [True, False])
def test_a_step_made_again_is_that_of_the_whole_stream(split: Photographs, augment: bool) -> None:
    whole = arrays(split.train_dataset(range(0, 9), 8, 5, augment=augment))
    assert [(x.shape, x.dtype, y.dtype) for x, y in whole] == [
        ((8, SIDE, SIDE, 3), np.float32, np.int32)
    ] * 9
    for start, stop in ((4, 5), (2, 6), (7, 9)):  # in an epoch of three steps, and over its end
        again = arrays(split.train_dataset(range(start, stop), 8, 5, augment=augment))
        assert equal(again, whole[start:stop])
    labels = [np.concatenate([y for _, y in whole[i : i + 3]]) for i in (0, 3, 6)]
    assert [len(set(each.tolist())) for each in labels] == [24] * 3  # no duplicates in an epoch
    assert not np.array_equal(labels[0], labels[1])
    assert not equal(arrays(split.train_dataset(range(0, 1), 8, 6)), whole[:1])


def test_parts_of_a_batch_make_up_the_whole(split: Photographs) -> None:
    (whole,) = arrays(split.train_dataset(range(3, 4), 8, 5))
    parts = [arrays(split.train_dataset(range(3, 4), 8, 5, part=(i, 4)))[0] for i in range(4)]
    assert equal([[np.concatenate(each) for each in zip(*parts, strict=True)]], [whole])
    with pytest.raises(UserError, match=r"batch_size=8 for 3 parts"):
        split.train_dataset(range(3, 4), 8, 5, part=(0, 3))


def test_evaluation_reads_each_once_in_order(split: Photographs) -> None:
    x, y, weight = (np.concatenate(c) for c in zip(*arrays(split.eval_dataset(8)), strict=True))
    assert len(x) == 32
    assert y[:COUNT].tolist() == list(range(COUNT))
    assert weight.tolist() == [1] * COUNT + [0, 0]
    assert split.eval_dataset(8).cardinality() == 4


@pytest.fixture(scope="module")
def boxes() -> Iterator[Any]:
    """Random boxes [n, 4] of a picture of some size."""
    import tensorflow as tf

    @tf.function
    def drawn(size: Any, numbers: Any) -> Any:
        box = tf.map_fn(lambda n: streamed.random_box(size, n), numbers, tf.int32)
        return box, streamed.centre_box(size)

    def draw(size: tuple[int, int], n: int) -> tuple[np.ndarray, np.ndarray]:
        numbers = np.random.default_rng(0).random((n, streamed.DRAWS), np.float32)
        return tuple(b.numpy() for b in drawn(tf.constant(size), tf.constant(numbers)))

    yield draw


@pytest.mark.parametrize("size", [(375, 500), (500, 333), (224, 224)])
def test_random_crops_keep_area_and_aspect(size: tuple[int, int], boxes: Any) -> None:
    (found, _), whole = boxes(size, 2000), np.array(size)
    assert found[:, :2].min() >= 0
    assert (found[:, :2] + found[:, 2:] <= whole).all()
    height, width = found[:, 2:].T
    area, aspect = height * width / whole.prod(), width / height
    assert 0.078 < area.min() < 0.1  # a side is rounded to whole pixels
    assert 0.85 < area.max() < 1.01
    assert 0.73 < aspect.min() < 0.77
    assert 1.29 < aspect.max() < 1.36
    spare = np.maximum(whole - found[:, 2:], 1)
    assert (found[:, :2] / spare).mean(0) == pytest.approx([0.5, 0.5], abs=0.03)


@pytest.mark.parametrize(
    ("size", "largest"),
    [((10, 400), [0, 194, 10, 13]), ((400, 10), [194, 0, 13, 10]), ((1, 1), [0, 0, 1, 1])],
)
def test_where_no_crop_fits_the_largest_central_one_is_taken(
    size: tuple[int, int], largest: list[int], boxes: Any
) -> None:
    found, centre = boxes(size, 50)
    assert largest in found.tolist()
    assert (found[:, 2:] >= 1).all()
    assert (found[:, :2] + found[:, 2:] <= np.array(size)).all()
    assert (centre[:2] + centre[2:] <= np.array(size)).all()


@pytest.mark.parametrize("i", [0, 2, 3, 7, 11])  # JPEG, a small one, grey, CMYK, PNG
def test_a_crop_is_that_of_the_whole_picture_as_pillow_decodes_it(i: int) -> None:
    from PIL import Image

    window = [3, 5, 14, 17]
    found = streamed.crop(encoded(i), lambda size: window).numpy().astype(int)
    whole = np.asarray(Image.open(io.BytesIO(encoded(i))).convert("RGB")).astype(int)[3:17, 5:22]
    assert np.abs(found - whole)[:, :-1].max() <= (i == 7)  # from four inks by other rounding
    assert np.abs(found - whole).max() <= 5  # of colours, half as fine, the next column is missing
    assert (np.ptp(found, axis=2).max() == 0) == (i == 3)


@needs("imagenet2012")
def test_real_photographs_have_the_pixels_of_pillow() -> None:
    from PIL import Image

    records = datasets.load("imagenet2012").test.records  # type: ignore[union-attr]
    for i in range(20):
        jpeg = streamed._parse(records.read(i))[0].numpy()
        whole = np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB"))
        top, left, height, width = streamed.centre_box(whole.shape[:2]).numpy()
        found = streamed.crop(jpeg, streamed.centre_box).numpy()
        expected = whole[top : top + height, left : left + width]
        np.testing.assert_array_equal(found[:, :-1], expected[:, :-1])


def test_evaluation_shows_the_centre_of_the_picture_resized(split: Photographs) -> None:
    from PIL import Image

    x, _, _ = arrays(split.eval_dataset(COUNT))[0]
    shown = (x * STD + MEAN) * 255
    for i in (0, 1, 2, 4, 5, 11):
        with Image.open(io.BytesIO(encoded(i))) as file:
            side = min(file.size) * 7 / 8
            left, top = ((whole - side) / 2 for whole in file.size)
            box = (left, top, left + side, top + side)
            centre = file.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=box)
        error = np.abs(shown[i] - np.array(centre, float))
        assert error.mean() < 6  # half a pixel of this picture is 5 grey levels


@needs("imagenet2012")
def test_imagenet_steps_can_be_entered_anywhere() -> None:
    splits = datasets.load("imagenet2012", train_examples=40)
    whole = arrays(splits.train.train_dataset(range(0, 4), 16, 1))
    assert equal(arrays(splits.train.train_dataset(range(3, 4), 16, 1)), whole[3:])
    assert splits.digest != datasets.load("imagenet2012", train_examples=41).digest
