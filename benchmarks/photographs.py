"""What does a stream of photographs cost over decoding the same crops alone?

Three ways to the same crops take turns, so that a busy machine slows them alike; a ratio is the
median over rounds of images/s, the first batch of each left out.

- stream: our training batches, from files, standardized, in an order made anew every epoch
- resized: the same crops decoded and resized in a plain tf.data map, from memory
- decoded: `decode_and_crop_jpeg` of the same crops alone

    python -m benchmarks.photographs      about 1 minute on 2 cores
"""

import time
from statistics import median
from typing import Any

import numpy as np

from pipelines.data import datasets, streamed
from pipelines.data.batches import batch_index
from pipelines.data.streamed import Photographs
from pipelines.errors import UserError
from pipelines.runtime import backend, provenance
from pipelines.tracking import tracked_run

BATCH, STEPS, ROUNDS, SEED = 32, 13, 7, 0


def main() -> None:
    """Measure where imagenet2012 is prepared; print the ratios and record them."""
    backend.tensorflow()
    tags = provenance.tags()
    try:
        split: Any = datasets.load("imagenet2012").train
    except UserError as error:
        print(f"imagenet2012: skipped. {error}")
        return
    params = {"batch_size": BATCH, "steps": STEPS, "rounds": ROUNDS}
    with tracked_run.tracked(
        "photographs", experiment="benchmarks", kind="benchmark", params=params
    ) as run:
        print(f"{tags['cpu']}, {tags['cores']} cores; images/s over ...: median (least-most)")
        for way, ratios in compare(split).items():
            print(f"{way:>10}  {median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")
            run.log({f"stream_over_{way}": median(ratios)})


def compare(split: Photographs) -> dict[str, list[float]]:
    """images/s of our stream over those of the plain maps; one ratio a round."""
    plain = crops(split)
    ways = {
        "stream": streamed.train_dataset(split, 0, STEPS, BATCH, SEED),
        "resized": mapped(plain, split.shape[:2]),
        "decoded": mapped(plain, None),
    }
    rounds = [{way: rate(ds) for way, ds in ways.items()} for _ in range(ROUNDS)]
    return {way: [r["stream"] / r[way] for r in rounds] for way in ways if way != "stream"}


def crops(split: Photographs) -> tuple[Any, Any]:
    """The JPEGs [n] of all steps and the boxes int32 [n, 4] that the stream cuts from them."""
    import tensorflow as tf

    encoded, boxes = [], []
    for step in range(STEPS):
        numbers = np.random.default_rng([SEED, 1, step]).random((BATCH, streamed.DRAWS), np.float32)
        for i, own in zip(batch_index(len(split), step, BATCH, SEED), numbers, strict=True):
            example = tf.train.Example.FromString(split.records.read(i))
            (image,) = example.features.feature["image"].bytes_list.value
            size = tf.image.extract_jpeg_shape(image)[:2]
            encoded.append(image)
            boxes.append(streamed.random_box(size, own))
    return tf.constant(encoded), tf.stack(boxes)


def mapped(plain: tuple[Any, Any], size: tuple[int, int] | None) -> Any:
    """A plain tf.data map over the crops: decoded, then resized and batched where `size` says."""
    import tensorflow as tf

    def one(image: Any, box: Any) -> Any:
        crop = tf.image.decode_and_crop_jpeg(image, box, channels=3)
        return tf.image.resize(crop, size) if size else tf.reduce_max(crop[0, 0])

    ds = tf.data.Dataset.from_tensor_slices(plain)
    return ds.map(one, num_parallel_calls=tf.data.AUTOTUNE).batch(BATCH).prefetch(2)


def rate(ds: Any) -> float:
    """images/s from the first batch to the last."""
    ends = [time.perf_counter() for _ in ds]
    return BATCH * (len(ends) - 1) / (ends[-1] - ends[0])


if __name__ == "__main__":
    main()
