"""What is written for tensorflow-datasets: whole for programs that do not have this project."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.data import datasets
from pipelines.data.embedded import EMBEDDED

# SHA-256 of the parts, on which recorded evidence rests: training, validation, test.
DIGESTS = {
    "digits": ["5b7066cf", "d6911181", "329be4ba"],
    "synthetic": ["6fc641e0", "f577ef0b", "9f6d8d18"],
}
FOREIGN = """
import json, sys
import tensorflow_datasets as tfds
name, folder = sys.argv[1:]
info = tfds.builder(name, data_dir=folder).info
pairs = tfds.load(name, data_dir=folder, split="train", as_supervised=True)
image, label = next(pairs.as_numpy_iterator())
try:
    tfds.data_source(name, data_dir=folder, split="train")
except NotImplementedError as error:
    source = str(error)
print(json.dumps([image.shape, int(label), info.description, info.citation, info.homepage, source]))
assert not any(module.startswith("pipelines") for module in sys.modules)
"""


def digests(name: str) -> list[str]:
    splits = datasets.load(name)
    return [part.digest for part in (splits.train, splits.val, splits.test)]


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_sets_are_read_whole_by_a_foreign_process(name: str, empty: Path) -> None:
    assert digests(name) == DIGESTS[name]
    done = subprocess.run(
        [sys.executable, "-c", FOREIGN, name, str(empty)],
        cwd=empty,
        capture_output=True,
        text=True,
        check=True,
    )
    shape, label, description, citation, homepage, source = json.loads(done.stdout)
    card = EMBEDDED[name].card
    assert (tuple(shape), 0 <= label < 10) == (datasets.get(name).sizes({})[0], True)
    assert (description, citation) == (card.description, card.citation)
    assert homepage == card.homepage or card.homepage is None
    assert "FileFormat.TFRECORD is not supported" in source


@pytest.mark.parametrize("name", EMBEDDED)
def test_a_folder_that_was_written_without_a_card_is_read_as_before(name: str, empty: Path) -> None:
    import tensorflow as tf
    import tensorflow_datasets as tfds

    shape, classes = datasets.get(name).sizes({})
    features = {
        "image": tfds.features.Image(shape=shape),
        "label": tfds.features.ClassLabel(num_classes=classes),
    }
    parts = EMBEDDED[name].make()
    tfds.dataset_builders.store_as_tfds_dataset(
        name=name,
        version="1.0.0",
        data_dir=empty,
        features=tfds.features.FeaturesDict(features),
        split_datasets={
            part: tf.data.Dataset.from_tensor_slices(arrays) for part, arrays in parts.items()
        },
    )
    assert digests(name) == DIGESTS[name]
    assert datasets.get(name).check()["version"] == "1.0.0"  # and nothing is written
    datasets.get(name).prepare()
    assert datasets.get(name).check()["version"] == "1.0.1"
    assert digests(name) == DIGESTS[name]
