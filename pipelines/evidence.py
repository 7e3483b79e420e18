"""The project's evidence: bundles of the runs behind RESULTS.md, which travel with the code.

Each holds runs of one claim, without stored networks. The project's own MLflow home takes them in
by itself; there they have the tag `origin` = `project`, and count as nobody's own measurements.
"""

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines import (
    bundle,
    bundle_format,
    bundle_out,
    claim,
    history,
    recorded,
    reference,
    report,
    store,
    sweep,
)
from pipelines.errors import UserError, unknown
from pipelines.grid import Cell
from pipelines.habits import Habits
from pipelines.order import Order
from pipelines.provenance import ROOT
from pipelines.recipes import digest

FOLDER = ROOT / "mlruns" / "evidence"


def bundles(names: Collection[str] | None = None) -> list[Path]:
    """Return the files of the evidence: all, or those about the claims named."""
    return [f for f in sorted(FOLDER.glob("*.zip")) if names is None or subject(f) in names]


def subject(file: Path) -> str:
    """Return the claim that a bundle is about: `two-phases` of two-phases-3f2a9c01.zip."""
    return file.stem.rpartition("-")[0]


def take_in(names: Collection[str] | None = None) -> int:
    """Import what this home lacks of the evidence, or of that of some claims; how many bundles.

    A store that MLFLOW_TRACKING_URI names holds what people put there: `import` brings a bundle.
    """
    return _import_missing(names) if store.is_own() else 0


def _import_missing(names: Collection[str] | None) -> int:
    missing = [file for file in bundles(names) if not is_here(file)]
    if missing:
        print(f"Taking in the project's evidence, once: {len(missing)} bundles.", file=sys.stderr)
    for file in missing:
        bundle.import_runs(file)
    if missing and names is None:
        reference.write()
    return len(missing)


def is_here(file: Path) -> bool:
    """Return whether all runs of a bundle are in this store, whole."""
    ids = [row["run_id"] for row in bundle_format.read_manifest(file)["runs"]]
    there = bundle_out.present(ids)
    return all(i in there and not there[i].unfinished for i in ids)


def add(words: Sequence[str]) -> dict[str, Any]:
    """Make measurements part of the evidence: of files that `export` wrote, or of claims run here.

    What the evidence has already is left out. Seeds that are complete from 0 on are joined into one
    run of the claim, with one verdict. UserError for what is neither a file nor a claim.
    """
    if not words:
        raise UserError(
            "What is added must be named: a file that `export` wrote, or a claim that was run "
            "here. Received: nothing. Name one."
        )
    names = {word for word in words if word in claim.names()}
    files = [word for word in words if word not in names]
    for word in files:
        if not (Path(word).is_file() or word.endswith(".zip")):
            raise unknown("What is added", word, claim.names())
    ids = {run_id for word in files for run_id in _imported(Path(word))}
    cells = history.everyones(kind="setting")
    wanted = names | {row.tags["claim"] for row in cells if row.id in ids and "claim" in row.tags}
    _import_missing(wanted)
    every = list(bundle_out.search("attributes.status = 'FINISHED'"))
    added = [_add(name, None if name in names else ids, every) for name in sorted(wanted)]
    return {"added": [each for each in added if each]}


def _imported(file: Path) -> list[str]:
    """Import a file; the ids here of the runs in it."""
    done = bundle.import_runs(file)
    return [*done["imported"], *done["present"]]


def _add(name: str, run_ids: Collection[str] | None, every: Sequence[Any]) -> dict[str, Any] | None:
    """Write the cells of a claim that are new into a bundle, with the runs that join them.

    Only cells with these ids are taken, if any are given.
    """
    cells = _new_cells(name, run_ids)
    if not cells:
        return None
    known = {row["run_id"] for file in bundles() for row in _runs(file)}
    whole = bundle.with_relatives([cell.id for cell in cells], every) - known
    for run_id in sorted(whole):
        store.client().set_tag(run_id, store.OWNER, store.PROJECT)
    joined = [row for scale in claim.load(name).scales if (row := _join(name, scale))]
    for row in joined:
        store.client().set_tag(row.id, store.OWNER, store.PROJECT)
    chosen = sorted(whole | {row.id for row in joined} - known)
    file = FOLDER / f"{name}-{digest(chosen)[:8]}.zip"
    FOLDER.mkdir(parents=True, exist_ok=True)
    bundle.write(file, chosen, files=True, models=False, thin=True)
    seeds = {row.tags["scale"]: int(row.tags["seeds"]) for row in joined}
    return {"claim": name, "file": str(file), "cells": len(cells), "seeds": seeds}


def _runs(file: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = bundle_format.read_manifest(file)["runs"]
    return rows


def _new_cells(name: str, run_ids: Collection[str] | None) -> list[history.Row]:
    """Return finished cells with settings that a claim states and that no bundle has; each once."""
    code_of: dict[str, str] = {}
    rows = history.everyones(kind="setting", claim=name)
    most = max((int(row.params["seed"]) + 1 for row in rows), default=0)
    for scale in claim.load(name).scales:
        order = stated(name, scale, max(most, 1))
        code_of |= {order.cell_fingerprint(cell): order.code for cell in order.cells}
    taken = {r["fingerprint"] for file in bundles([name]) for r in _runs(file)}
    new = {
        row.tags["fingerprint"]: row
        for row in sorted(rows, key=lambda row: _preference(row, code_of))
        if row.tags["fingerprint"] in code_of.keys() - taken
        if run_ids is None or row.id in run_ids or row.is_project
    }
    return list(new.values())


def _preference(row: history.Row, code_of: Mapping[str, str]) -> tuple[bool, int]:
    """Return by what one of two measurements of a cell is preferred: today's code, its date."""
    return row.tags["code"] == code_of.get(row.tags["fingerprint"]), row.start_ms


def stated(name: str, scale: str, seeds: int) -> Order:
    """Return what a claim states at a scale, with so many seeds, over the project's cells alone."""
    settings = claim.load(name).scales[scale]
    habits = Habits(reuse="project")
    return Order(name=name, scale=scale, settings=settings, seeds=seeds, habits=habits)


def complete_seeds(cells: Iterable[Cell], order: Order, there: Collection[str]) -> int:
    """Return how many seeds are complete, from 0 on, where cells with these prints are there."""
    lacking = {c.seed for c in cells if order.cell_fingerprint(c) not in there}
    return min(lacking, default=order.seeds)


def _join(name: str, scale: str) -> history.Row | None:
    """Return the run that joins the project's cells at a scale; None where no seed is complete.

    No seed is left out between two others, so that none can be chosen.
    """
    rows = history.rows(kind="setting", claim=name, **{store.OWNER: store.PROJECT})
    order = stated(name, scale, max(int(row.params["seed"]) + 1 for row in rows))
    there = recorded.finished(name, order.code, "project")
    seeds = complete_seeds(order.cells, order, there)
    order = stated(name, scale, max(seeds, 1))
    if not seeds:
        return None
    before = history.everyones(kind="claim", claim=name, fingerprint=order.fingerprint)
    ids = {there[order.cell_fingerprint(cell)] for cell in order.cells}
    same = [row for row in before if set(report.cells_of(row)) == ids]
    if same:
        return same[0]
    done = sweep.check(name, scale, order.settings, seeds, habits=order.habits)
    return history.row(done["run_id"])


def listing() -> dict[str, Any]:
    """Return every bundle: its claim, what it holds, its size, and whether it is in this store."""
    return {"evidence": [_line(file) for file in bundles()]}


def _line(file: Path) -> dict[str, Any]:
    kinds = [row["kind"] for row in _runs(file)]
    return {
        "file": file.name,
        "claim": subject(file),
        "cells": kinds.count("setting"),
        "runs": len(kinds),
        "bytes": file.stat().st_size,
        "here": is_here(file),
    }


def show(document: Mapping[str, Any]) -> None:
    """Print the bundles and their size in all."""
    for row in document["evidence"]:
        here = "" if row["here"] else "  not in this store"
        print(f"{row['file']:<55} {row['runs']:>5} runs {row['bytes']:>10,} bytes{here}")
    size = sum(row["bytes"] for row in document["evidence"])
    print(f"{len(document['evidence'])} bundles, {size:,} bytes: {FOLDER}")


def show_added(document: Mapping[str, Any]) -> None:
    """Print what is new in the evidence, and what to do next."""
    for each in document["added"]:
        joined = ", ".join(f"{n} seeds at {scale} scale" for scale, n in each["seeds"].items())
        print(f"{each['claim']}: {each['cells']} cells added, {joined or 'no seed complete yet'}")
        print(f"  {each['file']}")
    if not document["added"]:
        print("Nothing is new: the evidence has all of it.")
    else:
        print("Next: python -m pipelines report --publish, and commit what it wrote.")
