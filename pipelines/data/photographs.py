"""Data sets of stored photographs, of many sizes and too many for memory: they stay on disk.

What is done with them in a training is in streamed.py.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from pipelines.data import _tfrecords, streamed
from pipelines.data.datasets import DataSet, Splits
from pipelines.data.pictures import Prepared, StoredPictures
from pipelines.data.streamed import Photographs
from pipelines.data.task_metrics import TOP5
from pipelines.errors import unknown


class StoredPhotographs(StoredPictures):
    """ImageNet's photographs, from archives that a person has to fetch."""

    manual = ("ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar")
    manual_from = "image-net.org, after registration"
    arguments: ClassVar[Mapping[str, Any]] = {
        "byte_scale": False,  # pixels 0 to 255, less their mean, as Krizhevsky et al. 2012
        "colours": False,
        "crops": "area",
        "ten_crops": False,  # whether the test reads ten crops of each
    }
    pack = DataSet.pack

    def check_arguments(self, data_args: Mapping[str, Any]) -> None:
        """Raise UserError for an argument that such data do not have, or a value it cannot have."""
        crops = data_args.get("crops", "area")
        if crops not in (choices := ("area", *streamed.SIDES)):
            raise unknown("The crops of training pictures", str(crops), choices)
        super().check_arguments({k: v for k, v in data_args.items() if k != "crops"})

    def unsuitable_settings(self) -> dict[str, str]:
        return {"pictures": "--pictures host"}

    def load(
        self, train_examples: int | None, data_args: Mapping[str, Any], validation: bool = True
    ) -> Splits:
        """Return splits that stay on disk: only the places of their records are read."""
        stored = self._open_prepared()
        records = {
            part: _tfrecords.prepared_records(stored.builder, stored.file(part))
            for part in ("train", "test")
        }
        chosen = {**self.arguments, **data_args}
        std = np.full_like(streamed.STD, 1 / 255) if chosen["byte_scale"] else streamed.STD
        splits = [
            Photographs(
                records[part][cut],
                self.shape,
                streamed.MEAN,
                std,
                crops=chosen["crops"],
                colours=chosen["colours"],
                ten_crops=chosen["ten_crops"] and part == "test",
            )
            for part, cut in self.cuts(stored.count, train_examples, validation)
        ]
        return Splits(self.name, self.classes, *splits, task=TOP5)

    def _open(self) -> Prepared:
        return self._open_prepared()
