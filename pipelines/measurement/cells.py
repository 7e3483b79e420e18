"""The cells of a claim as one table of its run: `cells.npz`, which holds every number of theirs.

Cells that have the same steps and curves are a group, numbered from 0. Of each group there are

    0/steps [k], 0/row [n]                    and by name 0/curves/NAME [n, k]

where `row` counts the cells in their order, and of all cells, in that order,

    fingerprint, code, trained, start_ms, end_ms [cells]

Cells that were measured and are not yet part of a finished run wait in files of the same form, so
that a kill loses none: those of a claim, by the code that measures it, are one folder.
"""

import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.errors import UserError
from pipelines.measurement.grid import Cell, Measured
from pipelines.measurement.plan import MeasurementPlan
from pipelines.runtime import files
from pipelines.tracking import history, store

TABLE = "cells.npz"
CELL_CODE = "cell_code"  # tag of a run: the code that measures its cells
CURVES = "curves/"
MOST_BYTES = 1 << 30  # largest table that is read: 800 times the largest of ours


def pack(plan: MeasurementPlan, measured: Sequence[Measured]) -> bytes:
    """Return cells of a plan as the bytes of a table; equal cells are equal bytes."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for row, m in enumerate(measured):
        groups.setdefault((*m.curves, m.steps.tobytes()), []).append(row)
    arrays: dict[str, NDArray[Any]] = {
        "fingerprint": np.array([plan.cell_fingerprint(m.cell) for m in measured]),
        "code": np.array([m.code for m in measured]),
        "trained": np.array([" ".join(m.trained) for m in measured]),
        "start_ms": np.array([m.start_ms for m in measured], np.int64),
        "end_ms": np.array([m.end_ms for m in measured], np.int64),
    }
    for number, rows in enumerate(groups.values()):
        first = measured[rows[0]]
        arrays[f"{number}/steps"], arrays[f"{number}/row"] = first.steps, np.array(rows, np.int64)
        for name in first.curves:
            stacked = np.stack([measured[row].curves[name] for row in rows])
            arrays[f"{number}/{CURVES}{name}"] = stacked.astype(np.float64)
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def unpack(table: bytes, cells: Mapping[str, Cell]) -> dict[str, Measured]:
    """Return by fingerprint those of `cells` that a table holds, in its order.

    Raise UserError for bytes that are no table, or too large a one. Nothing of it is run.
    """
    try:
        arrays = _read_arrays(table)
        names = {name.partition("/")[0] for name in arrays if "/" in name}
        keys = arrays["fingerprint"].tolist()
        about = [arrays[name].tolist() for name in ("code", "trained", "start_ms", "end_ms")]
        found: dict[int, Measured] = {}
        for group in sorted(names, key=int):
            steps = arrays[f"{group}/steps"]
            curves = {
                name.removeprefix(f"{group}/{CURVES}"): values
                for name, values in arrays.items()
                if name.startswith(f"{group}/{CURVES}")
            }
            for i, row in enumerate(arrays[f"{group}/row"].tolist()):
                if keys[row] in cells:
                    code, trained, start_ms, end_ms = (column[row] for column in about)
                    found[row] = Measured(
                        cells[keys[row]],
                        steps,
                        {name: values[i] for name, values in curves.items()},
                        code,
                        tuple(trained.split()),
                        start_ms,
                        end_ms,
                    )
    except (KeyError, IndexError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(
            f"The cells of a claim's run must be a table. Received: a {TABLE} that is none: "
            f"{error}. Measure the claim anew with --force."
        ) from error
    return {keys[row]: found[row] for row in sorted(found)}


def _read_arrays(table: bytes) -> dict[str, NDArray[Any]]:
    """Return the arrays of an NPZ file; ValueError for one whose arrays are not what they say."""
    with zipfile.ZipFile(io.BytesIO(table)) as zipped:
        if sum(info.file_size for info in zipped.infolist()) > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES:,} bytes unpacked")
        arrays = {}
        for info in zipped.infolist():
            content = io.BytesIO(zipped.read(info))
            np.lib.format.read_magic(content)
            shape, _, dtype = np.lib.format.read_array_header_1_0(content)
            if dtype.hasobject or content.tell() + dtype.itemsize * np.prod(shape, dtype=float) > (
                info.file_size
            ):
                raise ValueError(f"{info.filename} is shorter than it says")
            content.seek(0)
            array = np.lib.format.read_array(content, allow_pickle=False)
            arrays[info.filename.removesuffix(".npy")] = array
    return arrays


def read(run_id: str, cells: Mapping[str, Cell]) -> dict[str, Measured]:
    """Return by fingerprint those of `cells` that a run's table holds; none of a run without."""
    table = store.artifact(run_id, TABLE)
    return unpack(table, cells) if table else {}


def read_plan(plan: MeasurementPlan, run_id: str) -> list[Measured] | None:
    """Return the cells of a run of the plan, in its order; None if some are not there."""
    found = read(run_id, plan.cells_by_fingerprint)
    if len(found) < len(plan.cells):
        return None
    return [found[key] for key in plan.cells_by_fingerprint]


def find(plan: MeasurementPlan) -> dict[str, Measured]:
    """Return by fingerprint the cells of a plan that need not be measured, wherever they are.

    They wait, or a finished run of the claim holds them, if today's code has measured them. Where
    the plan may reuse those of any code, today's come first, then the newest.
    """
    if plan.run_options.force:
        return {}
    rows = history.rows_with_evidence if plan.reuse_anywhere else history.rows
    only = {} if plan.reuse_anywhere else {CELL_CODE: plan.code}
    every = [row for kind in history.RESULTS for row in rows(kind=kind, claim=plan.name, **only)]
    every.sort(key=lambda row: (row.tags.get(CELL_CODE) != plan.code, -row.start_ms))
    return collect(plan, every)


def collect(
    plan: MeasurementPlan, rows: Iterable[history.Row], waiting: bool = True
) -> dict[str, Measured]:
    """Return by fingerprint the cells of a plan that wait, or that one of these runs holds.

    Of equal ones the first counts. `waiting`: whether those that wait count.
    """
    wanted, found = plan.cells_by_fingerprint, dict[str, Measured]()
    for path in _waiting_files(plan) if waiting else ():
        found |= unpack(path.read_bytes(), wanted)
    for row in rows:
        if len(found) == len(wanted):
            break
        for key, cell in read(row.id, wanted).items():
            found.setdefault(key, cell)
    return found


def keep(plan: MeasurementPlan, measured: Sequence[Measured]) -> None:
    """Let cells wait on disk until a finished run holds them."""
    folder = _waiting_folder(plan)
    folder.mkdir(parents=True, exist_ok=True)
    first = plan.cell_fingerprint(measured[0].cell)
    with files.replace_whole(folder / f"{first}-{len(measured)}.npz") as half:
        half.write_bytes(pack(plan, measured))


def drop(plan: MeasurementPlan, measured: Iterable[Measured]) -> None:
    """Delete the files that wait with nothing but these cells, which a finished run holds now."""
    cells = {plan.cell_fingerprint(m.cell): m.cell for m in measured}
    for path in _waiting_files(plan):
        table = path.read_bytes()
        if len(unpack(table, cells)) == len(_read_arrays(table)["fingerprint"]):
            path.unlink(missing_ok=True)


def _waiting_files(plan: MeasurementPlan) -> list[Path]:
    every = sorted(_waiting_folder(plan).glob("*.npz"))
    return [path for path in every if not path.name.startswith(files.HALF)]


def _waiting_folder(plan: MeasurementPlan) -> Path:
    return store.home() / "live" / "cells" / f"{plan.name}-{plan.code}"
