"""Checkpoints: files that hold all of a training at one step, for exact resume.

One .npz a checkpoint: the arrays of the network, its optimizer and its running means, and a JSON
note. It is written aside and renamed, so that a kill leaves no half of one; the last two are kept.
"""

import json
import math
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.errors import DAMAGE_ERRORS
from pipelines.runtime.files import replace_whole

KEPT = 2
NOTE = "note"

Arrays = Mapping[str, Sequence[NDArray[Any]]]  # keys: parts of the training, with their variables


@dataclass(frozen=True)
class Checkpoint:
    """The state of a training after `step` steps; `note` is what its curves need to go on."""

    step: int
    note: Mapping[str, Any]
    arrays: Arrays


@dataclass(frozen=True)
class Saving:
    """The folder of checkpoints, and after how many steps they are saved; None: about a minute.

    From the moment `until` of time.monotonic() on, the next one is the last: training pauses.
    """

    folder: Path
    every: int | None = None
    until: float = math.inf

    @property
    def over(self) -> bool:
        """Whether that moment has come."""
        return time.monotonic() >= self.until

    def write(self, checkpoint: Checkpoint) -> Path:
        """Store a checkpoint and drop those before the last two. OSError: no space or no right."""
        self.folder.mkdir(parents=True, exist_ok=True)
        flat = {
            f"{part}/{number:05}": array
            for part, arrays in checkpoint.arrays.items()
            for number, array in enumerate(arrays)
        }
        path = self.folder / f"step-{checkpoint.step:09}.npz"
        with replace_whole(path) as half, half.open("wb") as file:
            np.savez(file, allow_pickle=False, **{NOTE: json.dumps(checkpoint.note)}, **flat)
            file.flush()
            os.fsync(file.fileno())
        for old in self._files()[:-KEPT]:
            old.unlink()
        return path

    def latest(self) -> Checkpoint | None:
        """Return the newest checkpoint that can be read whole, or None."""
        for path in reversed(self._files()):
            try:
                return _read(path)
            except DAMAGE_ERRORS:
                continue
        return None

    def discard(self) -> None:
        """Delete all checkpoints: the training is finished."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("step-*.npz"))


def _read(path: Path) -> Checkpoint:
    """Return a checkpoint from its file; the archive's checksums are verified on the way."""
    arrays: dict[str, list[NDArray[Any]]] = {}
    with path.open("rb") as file, np.load(file) as stored:
        note = json.loads(str(stored[NOTE]))
        if not isinstance(note, dict):
            raise ValueError(f"a note that is no mapping: {note!r}")
        for name in sorted(set(stored.files) - {NOTE}):
            arrays.setdefault(name.partition("/")[0], []).append(stored[name])
    return Checkpoint(_step(path), note, arrays)


def _step(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))
