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
from tensorflow_datasets.core.download import checksums, download_manager

from pipelines.data import tiny_imagenet
from pipelines.data.embedded import EMBEDDED, Card
from pipelines.errors import Unavailable, short


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


class TinyImageNet(LabelledPictures, skip_registration=True):  # type: ignore[call-arg]
    """Writes Tiny ImageNet, from an archive or folder at hand, or from Stanford's archive."""

    name = "tiny_imagenet"
    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS: ClassVar = [
        tfds.core.BuilderConfig(name=f"{side}x{side}", description=text)
        for side, text in tiny_imagenet.SIDES.items()
    ]
    url_infos: ClassVar = {
        tiny_imagenet.URL: checksums.UrlInfo(
            size=tiny_imagenet.ARCHIVE_BYTES,
            checksum=tiny_imagenet.ARCHIVE_SHA256,
            filename=tiny_imagenet.ARCHIVE,
        )
    }

    def __init__(self, config: str, data_dir: Path, source: Path | None) -> None:
        self._source, self._side = source, int(config.partition("x")[0])
        super().__init__(config=config, data_dir=data_dir)

    def _info(self) -> Any:
        shape, words = (self._side, self._side, 3), tfds.core.MetadataDict()
        return self.describe(tiny_imagenet.CARD, shape, tiny_imagenet.CLASSES, metadata=words)

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        source = self._source or _download(dl_manager)
        with tiny_imagenet.open_archive(source) as archive:
            self.info.features["label"].names = names = archive.classes()
            self.info.metadata["words"] = archive.words(names)
        return {part: self._generate_examples(source, part) for part in tiny_imagenet.PARTS}

    def _generate_examples(self, source: Path, part: str) -> Iterator[tuple[str, dict[str, Any]]]:
        with tiny_imagenet.open_archive(source) as archive:
            for name, wnid, image in archive.pictures(part, self._side):
                yield name, {"image": image, "label": wnid}


def get(name: str, home: Path) -> Any:
    """Return the builder of that name, ours or tensorflow-datasets', with its data folder."""
    first, _, config = name.partition("/")
    if first != TinyImageNet.name:
        return tfds.builder(name, data_dir=str(home))
    return TinyImageNet(config, home, tiny_imagenet.find(home))


def _download(dl_manager: Any) -> Path:
    """Return the downloaded archive of Tiny ImageNet. Raise Unavailable where it cannot be had."""
    errors = (OSError, tfds.download.DownloadError, download_manager.NonMatchingChecksumError)
    try:
        return Path(dl_manager.download(tiny_imagenet.URL))
    except errors as error:
        raise Unavailable(
            f"Tiny ImageNet could not be downloaded. Received: {short(error)}. Repeat the command "
            f"when {tiny_imagenet.URL} can be reached, or put that file, fetched elsewhere, into "
            "downloads/manual of the data folder."
        ) from error
