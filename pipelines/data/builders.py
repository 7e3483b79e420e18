"""Builders of tensorflow-datasets for the data sets that are written here.

What one has written, any program reads by `tfds.load(NAME, data_dir=...)` without this project:
with `as_supervised=True`, and with its description, citation and homepage. TFRecord is the format,
for `as_dataset` reads no other.

tensorflow-datasets is imported at the top: import this module inside the functions.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import tensorflow_datasets as tfds

from pipelines.data.embedded import EMBEDDED, Card


class LabelledPictures(  # type: ignore[call-arg]
    tfds.core.GeneratorBasedBuilder, skip_registration=True
):
    """Writes images of one size with their labels, and their card."""

    def describe(self, card: Card, shape: tuple[int, ...], classes: int, **more: Any) -> Any:
        """Return what tensorflow-datasets writes beside the examples."""
        features = {
            "image": tfds.features.Image(shape=shape),
            "label": tfds.features.ClassLabel(num_classes=classes),
        }
        return tfds.core.DatasetInfo(  # `self.create_dataset_info` wants a package with a README.md
            builder=self,
            description=card.description,
            features=tfds.features.FeaturesDict(features),
            supervised_keys=("image", "label"),
            homepage=card.homepage,
            citation=card.citation,
            **more,
        )


class EmbeddedPictures(LabelledPictures, skip_registration=True):  # type: ignore[call-arg]
    """Writes a data set that needs no download."""

    VERSION = tfds.core.Version("1.0.1")
    RELEASE_NOTES: ClassVar = {
        "1.0.0": "The pictures and their labels.",
        "1.0.1": "The same pictures in the same order, with supervised keys, citation, homepage.",
    }

    def __init__(self, name: str, shape: tuple[int, ...], classes: int, data_dir: Path) -> None:
        self.name, self._shape, self._classes = name, shape, classes
        super().__init__(data_dir=data_dir)

    def _info(self) -> Any:
        return self.describe(EMBEDDED[self.name].card, self._shape, self._classes)

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        parts = EMBEDDED[self.name].make()
        return {part: self._generate_examples(arrays) for part, arrays in parts.items()}

    def _generate_examples(self, arrays: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
        for i, (image, label) in enumerate(zip(arrays["image"], arrays["label"], strict=True)):
            yield i, {"image": image, "label": label}


def get(name: str, home: Path) -> Any:
    """Return tensorflow-datasets' builder of that name, with its data folder."""
    return tfds.builder(name, data_dir=str(home))
