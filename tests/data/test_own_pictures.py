"""Pictures of a person's own: a folder, a NumPy file, a set of tensorflow-datasets."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipelines.data import datasets
from pipelines.data.own import packing, prepared_set
from pipelines.data.own.stored import OwnPictures
from pipelines.errors import UserError

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of this test's own."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "home"))
    return tmp_path / "home"


def noise(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def save(path: Path, pixels: np.ndarray, **how: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **how)
    return path


def folder_of(root: Path, counts: dict[str, int], shape: tuple[int, ...] = (6, 6, 3)) -> Path:
    for name, count in counts.items():
        for number in range(count):
            save(root / name / f"{number}.png", noise(*shape))
    return root


def contents(split: Any) -> set[bytes]:
    return {image.tobytes() for image in split.images}


def parts_of(own: OwnPictures) -> tuple[set[bytes], set[bytes], set[bytes]]:
    splits = datasets.load(own.name)
    return contents(splits.train), contents(splits.val), contents(splits.test)


def test_a_picture_keeps_its_part_when_another_is_added(tmp_path: Path) -> None:
    root = folder_of(tmp_path / "mine", {"cat": 150, "dog": 100})
    before = packing.pack(str(root))
    parts = parts_of(before)
    save(root / "cat" / "another.png", noise(6, 6, 3))
    after = packing.pack(str(root))
    assert after.name != before.name
    assert sum(map(len, parts_of(after))) == 251
    for old, new in zip(parts, parts_of(after), strict=True):
        assert old <= new


def test_shares_are_those_of_every_class_within_chance(tmp_path: Path) -> None:
    own = packing.pack(str(folder_of(tmp_path / "mine", {"cat": 400, "dog": 200, "eel": 100})))
    tested = np.array(own.about["pictures"]["test"])
    sizes = np.array([400, 200, 100])
    assert (abs(tested - 0.2 * sizes) < 4 * np.sqrt(0.16 * sizes)).all()  # 4 deviations
    whole = own.about["pictures"]["train"]
    assert abs(own.validation - 0.1 * sum(whole)) < 4 * np.sqrt(0.09 * sum(whole))


def test_equal_pictures_have_one_name_wherever_they_lie(tmp_path: Path) -> None:
    root = folder_of(tmp_path / "mine", {"cat": 20, "dog": 20})
    first = packing.pack(str(root))
    (tmp_path / "other").mkdir()
    root.rename(tmp_path / "other" / "mine")
    assert packing.pack(str(tmp_path / "other" / "mine")).name == first.name
    assert datasets.get(first.name) == first  # by its name alone, and without the folder


def test_a_class_never_lacks_a_test_picture(tmp_path: Path) -> None:
    own = packing.pack(str(folder_of(tmp_path / "mine", {str(i): 3 for i in range(40)})))
    assert min(own.about["pictures"]["test"]) >= 1
    assert min(own.about["pictures"]["train"]) >= 1


def test_classes_are_in_the_order_that_people_count_in(tmp_path: Path) -> None:
    root = folder_of(tmp_path / "mine", {"10": 5, "9": 5, "1": 5, "cat": 5})
    assert packing.pack(str(root)).about["names"] == ["1", "9", "10", "cat"]


def test_what_other_programs_leave_is_no_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = folder_of(tmp_path / "mine", {"cat": 9, "dog": 9})
    clean = packing.pack(str(root)).name
    folder_of(root, {".ipynb_checkpoints": 3, "__MACOSX": 2})
    (root / "cat" / "._0.png").write_bytes(b"no picture")
    (root / "Thumbs.db").write_bytes(b"")
    assert packing.pack(str(root)).name == clean
    (root / "dog" / "readme.txt").write_text("read me")
    assert packing.pack(str(root)).name == clean
    assert "Left out as no pictures in a class: readme.txt." in capsys.readouterr().err


def test_parts_that_are_there_stay_as_they_are(tmp_path: Path) -> None:
    for part, count in {"train": 20, "val": 5, "test": 7}.items():
        folder_of(tmp_path / "mine" / part, {"cat": count, "dog": count})
    own = packing.pack(str(tmp_path / "mine"))
    splits = datasets.load(own.name)
    assert (len(splits.train), len(splits.val), len(splits.test)) == (40, 10, 14)
    files = (tmp_path / "mine" / "val").rglob("*.png")
    assert contents(splits.val) == {np.asarray(Image.open(file)).tobytes() for file in files}


def test_validation_without_test_is_the_test_part(tmp_path: Path) -> None:
    for part in ("train", "validation"):
        folder_of(tmp_path / "mine" / part, {"cat": 20, "dog": 20})
    own = packing.pack(str(tmp_path / "mine"))
    assert sum(own.about["pictures"]["test"]) == 40
    assert "validation/ is the test part" in own.about["notes"][0]


def test_a_repeated_picture_is_said(tmp_path: Path) -> None:
    for part in ("train", "test"):
        folder_of(tmp_path / "mine" / part, {"cat": 4, "dog": 4})
    pixels = (tmp_path / "mine/train/cat/0.png").read_bytes()
    (tmp_path / "mine/test/cat/same.png").write_bytes(pixels)
    (tmp_path / "mine/train/dog/same.png").write_bytes(pixels)
    notes = packing.pack(str(tmp_path / "mine")).about["notes"]
    train, test = "train/cat/0.png", "test/cat/same.png"
    assert notes == [
        f"In two parts, byte for byte: 1 pictures, the first {train} and {test}.",
        f"In two classes, byte for byte: 1 pictures, the first {train} and train/dog/same.png.",
    ]


def one_picture(tmp_path: Path, pixels: np.ndarray, name: str = "x.png", **how: Any) -> np.ndarray:
    """The pixels as which one picture among others is read; [h, w, c]."""
    root = folder_of(tmp_path / "mine" / "train", {"cat": 3, "dog": 3}).parent
    folder_of(root / "test", {"cat": 1})
    save(root / "test" / "dog" / name, pixels, **how)
    splits = datasets.load(packing.pack(str(root)).name)
    return splits.test.images[list(splits.test.labels).index(1)]


def test_sixteen_bits_keep_their_range(tmp_path: Path) -> None:
    deep = np.linspace(0, 65535, 36).round().astype(np.uint16).reshape(6, 6)
    assert (one_picture(tmp_path, deep)[..., 0] == np.round(deep / 257)).all()


def test_transparent_pixels_are_white_whatever_they_hide(tmp_path: Path) -> None:
    pixels = noise(6, 6, 4)
    pixels[..., 3] = 255
    pixels[:3, :, 3] = 0
    read = one_picture(tmp_path, pixels)
    assert (read[:3] == 255).all()
    assert (read[3:] == pixels[3:, :, :3]).all()


def test_pictures_are_turned_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees to the right
    pixels = noise(6, 6, 3)
    read = one_picture(tmp_path, pixels, exif=exif)
    assert (read == np.rot90(pixels, -1)).all()


def test_a_grey_picture_among_colours_has_equal_channels(tmp_path: Path) -> None:
    pixels = noise(6, 6)
    read = one_picture(tmp_path, pixels)
    assert (read == pixels[..., None]).all()
    assert read.shape == (6, 6, 3)


def test_grey_pictures_alone_have_one_channel(tmp_path: Path) -> None:
    assert packing.pack(str(folder_of(tmp_path / "mine", {"a": 5, "b": 5}, (6, 6)))).shape == (
        6,
        6,
        1,
    )


def test_a_size_scales_the_central_square_without_aliases(tmp_path: Path) -> None:
    stripes = np.zeros((64, 128, 3), np.uint8)
    stripes[:, 1::4] = stripes[:, 2::4] = 255
    root = tmp_path / "mine"
    for name in ("cat", "dog"):
        for number in range(6):
            copy = stripes.copy()
            copy[number, 0] = number + 10 * (name == "cat") + 1
            save(root / name / f"{number}.png", copy)
    with pytest.raises(UserError, match="64x128"):
        save(root / "cat" / "7.png", noise(70, 64, 3))
        packing.pack(str(root))
    own = packing.pack(str(root), 16)
    assert own.shape == (16, 16, 3)
    images = [each for each in datasets.load(own.name).train.images if each.std() < 30]
    assert len(images) >= 6
    assert all(abs(float(each.mean()) - 127.5) < 2 for each in images)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda root: (root / "cat" / "0.png").write_bytes(b"no picture"), "cat/0.png"),
        (lambda root: (root / "eel").mkdir(), "none in .*eel"),
        (lambda root: save(root / "cat" / "9.png", noise(5, 6, 3)), "6x6 .* of 5x6.*--size"),
        (
            lambda root: Image.fromarray(noise(6, 6)).save(
                root / "cat" / "moves.gif",
                save_all=True,
                append_images=[Image.fromarray(noise(6, 6))],
            ),
            "moves.gif: 2 pictures",
        ),
        (lambda root: (root / "cat").rename(root / "dog" / "cat"), "Two classes"),
    ],
)
def test_a_broken_folder_is_refused_by_the_file(
    tmp_path: Path, spoil: Callable[[Path], object], said: str
) -> None:
    root = folder_of(tmp_path / "mine", {"cat": 4, "dog": 4})
    spoil(root)
    with pytest.raises(UserError, match=said):
        packing.pack(str(root))


def arrays(**changed: Any) -> dict[str, Any]:
    """A file's arrays: 40 training and 10 test pictures of two classes."""
    given = {
        "x_train": noise(40, 6, 6, 3),
        "y_train": np.arange(40) % 2,
        "x_test": noise(10, 6, 6, 3),
        "y_test": np.arange(10) % 2,
    }
    return {key: value for key, value in {**given, **changed}.items() if value is not None}


def file_of(tmp_path: Path, **changed: Any) -> str:
    np.savez(tmp_path / "mine.npz", **arrays(**changed))
    return str(tmp_path / "mine.npz")


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    x = noise(10, 6, 6, 3)
    splits = datasets.load(packing.pack(file_of(tmp_path, x_test=x)).name)
    assert (splits.test.images == x).all()
    assert (splits.test.labels == np.arange(10) % 2).all()
    assert len(splits.train) + len(splits.val) == 40


@pytest.mark.parametrize(
    "change",
    [
        lambda a: {"x_train": a["x_train"] / 255, "x_test": (a["x_test"] / 255).astype(np.float32)},
        lambda a: {"x_train": a["x_train"].astype(float), "x_test": a["x_test"].astype(np.int64)},
        lambda a: {key: a[key].astype(np.uint16) * 257 for key in ("x_train", "x_test")},
        lambda a: {"y_train": a["y_train"][:, None], "y_test": a["y_test"].astype(float)},
        lambda a: {key: np.array(["a", "b"])[a[key]] for key in ("y_train", "y_test")},
    ],
)
def test_the_same_pictures_written_otherwise_are_the_same(
    tmp_path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    given = arrays()
    first = datasets.load(packing.pack(file_of(tmp_path, **given)).name)
    other = datasets.load(packing.pack(file_of(tmp_path, **given | change(given))).name)
    assert first.digest == other.digest
    assert (first.test.images == other.test.images).all()


def nan_at(x: np.ndarray, row: int) -> np.ndarray:
    spoilt = x / 255
    spoilt[row, 0, 0] = np.nan
    return spoilt


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"x_train": None}, "x_train and x_test .* Received: .*mine.npz with y_train"),
        ({"y_test": None}, "x_test without y_test"),
        ({"x_train": noise(39, 6, 6, 3)}, "39 pictures x_train with 40 labels"),
        ({"x_train": noise(40, 3, 6, 6)}, r"moveaxis\(x_train, 1, -1\)"),
        ({"x_train": noise(40, 108)}, "x_train of shape"),
        ({"x_train": noise(40, 6, 6, 3) / 255}, "one scale"),
        ({"x_train": nan_at(noise(40, 6, 6, 3), 7)}, r"x_train\[7\] from nan"),
        ({"x_test": noise(10, 6, 6, 3) - 128.0}, r"x_test\[0\] from -"),
        ({"x_test": noise(10, 6, 6, 3) + 0.5}, r"x_test\[0\] from"),
        ({"x_test": noise(10, 5, 6, 3)}, "train of 6x6 and test of 5x6"),
        ({"y_train": np.eye(2)[np.arange(40) % 2]}, r"y_train.argmax\(axis=1\)"),
        ({"y_train": np.where(np.arange(40) == 5, -1, np.arange(40) % 2)}, r"y_train\[5\] = -1"),
        ({"y_train": np.where(np.arange(40) == 5, np.nan, 1.0)}, r"y_train\[5\] = nan"),
        ({"y_test": np.where(np.arange(10) == 3, 7, 0)}, r"y_test\[3\] = 7, where y_train has 2"),
        ({"y_test": np.zeros(10, int)}, "none in test of 1"),
        ({"y_train": np.array([None] * 40)}, "without objects"),
    ],
)
def test_a_broken_file_is_refused_by_the_row(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        packing.pack(file_of(tmp_path, **changed))


def test_a_prepared_set_gives_its_parts(
    prepared_digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(prepared_digits))
    own = packing.pack("tfds:digits")
    try:
        mine, ours = datasets.load(own.name), datasets.load("digits")
        assert contents(mine.train) | contents(mine.val) == contents(ours.train) | contents(
            ours.val
        )
        assert (mine.test.images == ours.test.images).all()
        assert own.about["names"] == [str(i) for i in range(10)]
        assert packing.pack("tfds:digits", 16).shape == (16, 16, 1)
    finally:
        for path in prepared_digits.glob("digits-*.npz"):
            path.unlink()


def test_a_set_that_is_not_prepared_says_how(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="data prepare tfds:fashion_mnist"):
        packing.pack("tfds:fashion_mnist")


@pytest.mark.parametrize("name", ["nosuchset", "../x", "mnist/nosuch", "a b"])
def test_a_set_that_is_unknown_is_one_sentence(name: str) -> None:
    with pytest.raises(UserError, match="that tensorflow-datasets knows"):
        prepared_set.data_set(f"tfds:{name}").prepare()


def test_a_file_that_is_no_archive_is_said(tmp_path: Path) -> None:
    np.save(tmp_path / "mine.npy", noise(3, 6, 6))
    (tmp_path / "mine.npy").rename(tmp_path / "mine.npz")
    with pytest.raises(UserError, match="it is no archive of arrays"):
        packing.pack(str(tmp_path / "mine.npz"))


def test_a_lost_file_says_what_to_do(tmp_path: Path, home: Path) -> None:
    own = packing.pack(file_of(tmp_path))
    (home / f"{own.name}.npz").unlink()
    with pytest.raises(UserError, match="--data PATH"):
        datasets.get(own.name)


def test_a_forged_description_is_refused(tmp_path: Path, home: Path) -> None:
    own = packing.pack(file_of(tmp_path))
    path = home / f"{own.name}.npz"
    buffer = io.BytesIO(path.read_bytes().replace(b'"validation": ', b'"invalidation"'))
    path.write_bytes(buffer.getvalue())
    with pytest.raises(UserError, match="must hold"):
        datasets.load(own.name)
