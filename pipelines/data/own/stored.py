"""Data sets of a person's own, once they are packed into the data folder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.data import packed
from pipelines.data.datasets import Splits, data_home
from pipelines.data.pictures import CATALOG, Cut, Prepared, StoredPictures
from pipelines.errors import UserError, describe_damage


@dataclass(frozen=True)
class OwnPictures(StoredPictures):
    """A packed data set, whose last training examples, so many, are for validation."""

    validation: int = 0
    about: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """What its file says of it: where it came from, classes, what was noticed."""

    def cuts(
        self, count: Callable[[str], int], limit: int | None = None, validation: bool = True
    ) -> list[Cut]:
        """Return the training, validation and test examples, in parts of `count` examples."""
        whole = count("train")
        cut = whole - self.validation if validation else whole
        train = slice(0, cut if limit is None else min(limit, cut))
        return [("train", train), ("train", slice(cut, whole)), ("test", slice(0, count("test")))]

    def check(self, required: bool = False) -> dict[str, Any]:
        """Return what is packed, with its source, classes, pixels and what was noticed."""
        keys = ("source", "shape", "names", "pictures", "pixels", "notes")
        return super().check(required) | {key: self.about[key] for key in keys}

    def origin(self) -> tuple[str, dict[str, Any]]:
        """Return the folder or the file that it was packed of, or the page of the data set."""
        place = str(self.about["source"])
        if place.startswith("tfds:"):
            return "http", {"url": CATALOG + place.removeprefix("tfds:").partition("/")[0]}
        return "local", {"uri": place}

    def describe(self, splits: Splits) -> dict[str, Any]:
        """Return what MLflow is told of the parts; the profile has the classes and the pixels."""
        described = super().describe(splits)
        profile = {key: self.about[key] for key in ("names", "pixels", "notes")}
        return described | {"profile": described["profile"] | profile}

    def prepare(self) -> Path:
        return self._packed_file

    def pack(self) -> Path:
        return self._packed_file

    def _open_prepared(self) -> Prepared:
        raise missing(self.name)


def find(name: str) -> OwnPictures:
    """Return the data set of that name. Raise UserError if it is not in the data folder."""
    path = data_home() / f"{name}.npz"
    if not path.exists():
        raise missing(name)
    about = packed.read_about(path, name)
    try:
        height, width, channels = map(int, about["shape"])
        fields = int(about["classes"]), (height, width, channels), 0
        return OwnPictures(name, name, *fields, validation=int(about["validation"]), about=about)
    except (KeyError, TypeError, ValueError) as error:
        raise packed.damage_error(
            path, name, f"not a packed data set ({describe_damage(error)})"
        ) from error


def missing(name: str) -> UserError:
    return UserError(
        f"Pictures of your own must be in the data folder. Received: no {name}.npz in "
        f"{data_home()}. Name the folder or the file that they came from again (--data PATH), or "
        "copy that file from the machine where they were packed."
    )
