"""Photographs: a split that stays on disk, and its batches as pure functions of (seed, step).

JPEGs are decoded only in the crop. Batches come from tf.data; nothing of a split is held in memory
but the places of its records. Order and random numbers of a step are drawn in NumPy, so that any
step can be made again without the steps before it.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.data._tfrecords import Records
from pipelines.data.splits import WHOLE, Part, batch_index, share
from pipelines.errors import UserError

# Channel moments of ImageNet's pixels in [0, 1], those of torchvision's reference training.
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)

# Principal components of these pixels' colours, each a row of red, green and blue times its
# eigenvalue, of fb.resnet.torch; Krizhevsky et al. 2012 (section 4.1) add them with weights
# N(0, 0.1^2).
COLOURS = np.array([0.2175, 0.0188, 0.0045])[:, None] * np.array(
    [[-0.5675, -0.5808, -0.5836], [0.7192, -0.0045, -0.6948], [0.4009, -0.8140, 0.4203]]
)
COLOUR_SD = 0.1

LEAST_AREA, WIDEST = 0.08, 4 / 3  # a random crop's share of the image, its width over height
TRIES = 10  # random crops tried before the largest central one
DRAWS = 2 * TRIES + 3  # random numbers of an example: areas, aspects, place (2), flip
CENTRE = 7 / 8  # side of the test crop over the shorter side: 224 of 256
SIDES = {  # crops of 224 pixels, of images whose shorter side has so many pixels: least and most
    "side256": (256, 256),  # cut from the central square: Krizhevsky et al. 2012, section 4.1
    "side256-480": (256, 480),  # cut from the whole image: He et al. 2015, section 3.4
}
READ_AHEAD, BATCHES_AHEAD = 4, 2  # batches being read at once, decoded batches kept ready

Box = Callable[[Any], Any]  # height, width of an image [2] -> top, left, height, width [4]


@dataclass(frozen=True)
class Photographs:
    """A split that stays on disk: records of images of many sizes, and their labels.

    `crops` says how training images are cut: "area", by a share of their area, or one of SIDES.
    """

    records: Records
    shape: tuple[int, int, int]
    mean: NDArray[np.float32]
    std: NDArray[np.float32]
    crops: str = "area"
    colours: bool = False
    """Whether the colours of training images are shifted."""
    ten_crops: bool = False
    """Whether an evaluation reads ten crops of every image, not one."""

    def __len__(self) -> int:
        return len(self.records)

    @property
    def digest(self) -> str:
        """Return eight hexadecimal digits of the records' files and lengths."""
        return self.records.digest

    def head(self, n: int) -> "Photographs":
        """Return the split of the first n records, or of all where there are fewer."""
        return dataclasses.replace(self, records=self.records[:n])

    def tail(self, n: int) -> "Photographs":
        """Return the split of the last n records, of which there must be so many."""
        return dataclasses.replace(self, records=self.records[len(self) - n :])

    def train_dataset(
        self, steps: range, batch_size: int, seed: int, *, augment: bool = True, part: Part = WHOLE
    ) -> Any:
        """Return a tf.data of these steps: standardized x [b, h, w, 3], y int32 [b].

        Order and crops are drawn by (seed, step) alone; an epoch's last partial batch is left out.
        With `augment`, random crops and flips, else the centre crop. `part` (i, k) keeps the i-th
        of k equal slices of every batch. Raise UserError unless k divides batch_size.
        """
        if batch_size % part[1]:
            raise UserError(
                f"batch_size must be a multiple of the parts it is cut into. Received: batch_size="
                f"{batch_size} for {part[1]} parts. Set --batch-size accordingly."
            )
        mine = share(batch_size, part)

        def draw(step: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
            numbers = np.random.default_rng([seed, 1, step]).random((batch_size, DRAWS), np.float32)
            weights = np.random.default_rng([seed, 2, step]).standard_normal((batch_size, 3))
            both = np.concatenate([numbers, np.float32(COLOUR_SD * weights)], axis=1)
            return batch_index(len(self), step, batch_size, seed)[mine], both[mine]

        make = _random_crop if augment else _centre_crop
        return _make_batches(self, steps, draw, make, batch_size // part[1])

    def eval_dataset(self, batch_size: int) -> Any:
        """Return a tf.data of all examples once, in order: x, y and weight float32 [b].

        The centre crop, x [b, h, w, 3], or with `ten_crops` all ten, x [b, 10, h, w, 3]. Batches
        are of one size: the last is filled up by examples of weight 0.
        """
        make = _ten_crops if self.ten_crops else _centre_crop

        def draw(number: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
            index = np.arange(number * batch_size, (number + 1) * batch_size)
            weight = (index < len(self)).astype(np.float32)
            return np.minimum(index, len(self) - 1), weight[:, None]

        def weigh(split: Photographs, record: Any, numbers: Any) -> tuple[Any, ...]:
            return *make(split, record, numbers), numbers[0]

        numbers = range(math.ceil(len(self) / batch_size))
        return _make_batches(self, numbers, draw, weigh, batch_size)


def _make_batches(
    split: Photographs,
    steps: range,
    draw: Callable[[int], tuple[NDArray[np.int64], NDArray[np.float32]]],
    make: Callable[..., Any],
    size: int,
) -> Any:
    """Return the batches of these numbers, in order whatever the threads do.

    `draw` gives for each the examples [size] and their own numbers [size, k], with which `make`
    turns a record into an example.
    """
    import tensorflow as tf

    def fetch(number: NDArray[np.int64]) -> tuple[Any, Any]:
        index, numbers = draw(int(number))
        return np.array([split.records.read(i) for i in index], object), numbers

    def fetch_tensors(number: Any) -> tuple[Any, Any]:
        types = [tf.string, tf.float32]
        records, numbers = tf.numpy_function(fetch, [number], types, stateful=False)
        return tf.ensure_shape(records, [size]), tf.ensure_shape(numbers, [size, None])

    ds = tf.data.Dataset.range(steps.start, steps.stop)
    ds = ds.map(fetch_tensors, num_parallel_calls=READ_AHEAD, deterministic=True).unbatch()
    ds = ds.map(
        lambda record, numbers: make(split, record, numbers),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    ds = ds.batch(size, drop_remainder=True).prefetch(BATCHES_AHEAD)
    return ds.apply(tf.data.experimental.assert_cardinality(len(steps)))


def _random_crop(split: Photographs, record: Any, numbers: Any) -> tuple[Any, Any]:
    """Return a random crop, flipped half the time, of numbers [DRAWS + 3].

    The first DRAWS are in [0, 1), the others are the weights of COLOURS.
    """
    import tensorflow as tf

    encoded, label = _parse(record)
    sides, pixels = SIDES.get(split.crops), split.shape[0]

    def box(size: Any) -> Any:
        return sided_box(size, numbers, sides, pixels) if sides else random_box(size, numbers)

    x = _resize(split, crop(encoded, box), antialias=False)
    if split.colours:
        x += tf.linalg.matvec(tf.constant(COLOURS.T / split.std[:, None], tf.float32), numbers[-3:])
    return tf.cond(numbers[DRAWS - 1] < 0.5, lambda: tf.reverse(x, [1]), lambda: x), label


def _ten_crops(split: Photographs, record: Any, numbers: Any) -> tuple[Any, Any]:
    """Return the centre and the corners of the central square, as they are and flipped; [10, ...].

    Krizhevsky et al. 2012, section 4.1: crops of 224 pixels, of a square of 256.
    """
    import tensorflow as tf

    encoded, label = _parse(record)
    side, whole = split.shape[0], round(split.shape[0] / CENTRE)
    square = crop(encoded, lambda size: centre_box(size, share=1.0))
    x = _resize(split, square, antialias=True, shape=(whole, whole, split.shape[2]))
    most = whole - side
    corners = [(most // 2, most // 2), (0, 0), (0, most), (most, 0), (most, most)]
    five = tf.stack([x[top : top + side, left : left + side] for top, left in corners])
    return tf.concat([five, tf.reverse(five, [2])], 0), label


def _centre_crop(split: Photographs, record: Any, numbers: Any) -> tuple[Any, Any]:
    """Return the centre crop; it takes no random numbers."""
    encoded, label = _parse(record)
    return _resize(split, crop(encoded, centre_box), antialias=True), label


def _parse(record: Any) -> tuple[Any, Any]:
    """Return the encoded image and the label of a record."""
    import tensorflow as tf

    image, label = (tf.io.FixedLenFeature([], kind) for kind in (tf.string, tf.int64))
    example = tf.io.parse_single_example(record, {"image": image, "label": label})
    return example["image"], tf.cast(example["label"], tf.int32)


def crop(encoded: Any, box: Box) -> Any:
    """Return a box of an image, uint8 [h, w, 3]; a JPEG is decoded only there, grey is RGB.

    Its pixels are Pillow's, but for the last column: TensorFlow's default is a faster, inexact
    transform (other by one grey level on average), which on today's machines saves no time.
    """
    import tensorflow as tf

    def jpeg() -> Any:
        window = box(tf.image.extract_jpeg_shape(encoded)[:2])
        return tf.image.decode_and_crop_jpeg(
            encoded, window, channels=3, dct_method="INTEGER_ACCURATE"
        )

    def other() -> Any:
        image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
        top, left, height, width = tf.unstack(box(tf.shape(image)[:2]))
        return image[top : top + height, left : left + width]

    return tf.cond(tf.io.is_jpeg(encoded), jpeg, other)


def centre_box(size: Any, share: float = CENTRE) -> Any:
    """Return the central square whose side is that share of the shorter side; int32 [4]."""
    import tensorflow as tf

    side = tf.round(share * tf.cast(tf.reduce_min(size), tf.float32))
    side = tf.maximum(tf.cast(side, tf.int32), 1)
    return tf.concat([(size - side) // 2, [side, side]], 0)


def random_box(size: Any, numbers: Any) -> Any:
    """Return a crop of 8-100 % of the area, aspect 3/4-4/3 (Szegedy et al. 2015, section 6); [4].

    The first of TRIES that lies inside an image of height and width `size` [2]; where none does,
    the largest central one with an allowed aspect.
    """
    import tensorflow as tf

    whole = tf.cast(size, tf.float32)
    area = tf.reduce_prod(whole) * (LEAST_AREA + (1 - LEAST_AREA) * numbers[:TRIES])
    aspect = tf.exp(math.log(WIDEST) * (2 * numbers[TRIES : 2 * TRIES] - 1))
    tried = tf.round(tf.sqrt(tf.stack([area / aspect, area * aspect], 1)))  # [TRIES, 2]
    fits = tf.reduce_all((tried >= 1) & (tried <= whole), 1)
    largest = tf.minimum(whole, tf.maximum(tf.round(whole[::-1] * WIDEST), 1))
    chosen = tf.where(tf.concat([fits, [True]], 0))[0, 0]
    sides = tf.concat([tried, largest[None]], 0)[chosen]
    place = tf.where(chosen < TRIES, numbers[2 * TRIES : 2 * TRIES + 2], 0.5)
    corner = tf.minimum(tf.floor(place * (whole - sides + 1)), whole - sides)
    return tf.cast(tf.concat([corner, sides], 0), tf.int32)


def sided_box(size: Any, numbers: Any, sides: tuple[int, int], pixels: int) -> Any:
    """Return a square that has `pixels` a side where the shorter side has between `sides`; [4].

    Where `sides` are equal it lies in the central square, else anywhere in an image of height and
    width `size` [2].
    """
    import tensorflow as tf

    whole, (least, most) = tf.cast(size, tf.float32), sides
    short = tf.reduce_min(whole)
    shorter_side = tf.floor(least + numbers[0] * (most - least + 1))
    edge = tf.maximum(tf.round(pixels * short / shorter_side), 1)
    room = tf.stack([short, short]) if least == most else whole
    place = tf.floor(numbers[2 * TRIES : 2 * TRIES + 2] * (room - edge + 1))
    corner = tf.floor((whole - room) / 2) + tf.minimum(place, room - edge)
    return tf.cast(tf.concat([corner, [edge, edge]], 0), tf.int32)


def _resize(
    split: Photographs, image: Any, antialias: bool, shape: tuple[int, int, int] | None = None
) -> Any:
    """Return a crop [h, w, 3] at that shape, else the network's, standardized; float32.

    Training crops are not smoothed first, which would take twice as long as decoding.
    """
    import tensorflow as tf

    height, width, channels = shape or split.shape
    x = tf.image.resize(image, (height, width), antialias=antialias)
    scale, offset = (np.tile(v, width) for v in (1 / (255 * split.std), split.mean / split.std))
    flat = tf.reshape(x, [height, -1])  # broadcasting over rows, not pixels, is vectorized
    return tf.reshape(flat * scale - offset, (height, width, channels))
