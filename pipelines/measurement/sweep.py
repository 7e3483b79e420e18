"""A claim measured over its grid: cells -> curves -> one run a cell -> numbers -> verdict.

`check` takes the grid that the claim states, `sweep` any other. Both skip the cells that a finished
run holds already, and both, killed and started again, end as if they had not been interrupted.
"""

import contextlib
import dataclasses
import os
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.data import datasets
from pipelines.errors import WORKERS, Paused, UserError, check_counts
from pipelines.measurement import _executor, claim, claim_catalog, documents, grid
from pipelines.measurement.grid import Cell, Measured
from pipelines.measurement.plan import Order
from pipelines.measurement.verdict import spreads, summary
from pipelines.recipes.recipe import Recipe
from pipelines.run import DEFAULT, RunOptions, check_trainable
from pipelines.runtime.progress import progress_bar
from pipelines.tracking import bulk, history, recovery, store, tracked_run

BUSY = "busy_s"  # tag: seconds of the slices before
CELL_CODE = "cell_code"  # tag of a claim's run: the code that measures its cells
CODES = "measured_by"  # tag: the digests of the codes that measured a claim's cells
CHEAP_S = 600  # of seconds: what took less is measured anew where the code is another
LONG = ("hours", "paper")  # scales that always take longer
SEEDS = ("seeds", "first_seed")


def check(
    name: str,
    scale: str,
    settings: Any,
    seeds: int | None = None,
    *,
    run_options: RunOptions = DEFAULT,
    only_seed: int | None = None,
    sparing: bool = False,
) -> dict[str, Any]:
    """Measure a claim over seeds 0, 1, ... or one seed alone, record it, return its document.

    It is not measured again when a finished run has the same settings, seeds and code, unless
    `run_options.force`; nor, `sparing`, when it is expensive and was measured anywhere, by whatever
    code. The scoreboard takes runs `as_stated`: with the claim's own settings and seeds.
    """
    order = Order(
        name=name,
        scale=scale,
        settings=settings,
        seeds=_seeds(name, seeds) if only_seed is None else 1,
        first_seed=only_seed or 0,
        run_options=run_options,
        workers=1 if scale == "smoke" else _cores(),  # a smoke test is over before that
    )
    return measure(dataclasses.replace(order, sparing=sparing and is_expensive(order)))


def is_expensive(order: Order) -> bool:
    """Return whether an order takes long: by its scale, or as the same settings once did."""
    if order.scale in LONG:
        return True
    alike = {key: str(value) for key, value in order.params.items() if key not in SEEDS}
    return any(
        row.metrics.get("wall_s", 0) / int(row.tags["seeds"]) * order.seeds >= CHEAP_S
        for row in history.everyones(kind="claim", claim=order.name, scale=order.scale)
        if {key: value for key, value in row.params.items() if key not in SEEDS} == alike
    )


def sweep(
    name: str,
    scale: str,
    specs: Sequence[str],
    seeds: int | None = None,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    run_options: RunOptions = DEFAULT,
) -> dict[str, Any]:
    """Measure a claim over a grid of NAME=VALUES axes; the settings not named are the scale's.

    By `workers` processes of this machine, or by the workers of the Dask `scheduler`; what is
    recorded is the same.
    """
    settings, varied = grid.overridden(
        claim_catalog.setting(claim_catalog.load(name), name, scale), specs
    )
    if scheduler is not None:
        _check_cluster(name, scheduler, workers)
    workers = _cores() if workers is None else workers
    check_counts(WORKERS, workers=workers)
    return measure(
        Order(
            name=name,
            scale=scale,
            settings=settings,
            seeds=_seeds(name, seeds),
            kind="sweep",
            varied=varied,
            run_options=run_options,
            workers=workers,
            scheduler=scheduler,
        )
    )


def _check_cluster(name: str, scheduler: str, workers: int | None) -> None:
    """Raise UserError for what the workers of a scheduler cannot do."""
    if isinstance(claim_catalog.load(name), claim.Experiment):
        raise UserError(
            f"A cluster measures theorems. Received: --scheduler {scheduler} for {name}, which "
            "trains networks. Leave it out: they are trained here."
        )
    if workers is not None:
        raise UserError(
            "A cluster has its own workers. Received: --workers "
            f"{workers} with --scheduler {scheduler}. Leave one of the two out."
        )


def _seeds(name: str, seeds: int | None) -> int:
    n = claim_catalog.load(name).seeds if seeds is None else seeds
    check_counts(seeds=n)
    return n


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check(order: Order) -> None:
    """Raise UserError where a cell of the order cannot be measured anywhere."""
    for recipe in _recipes(order, order.cells):
        recipe.check()


def _check_here(order: Order) -> None:
    """Raise UserError where a cell that is to be measured cannot be measured on this machine."""
    there = _finished_cells(order)
    todo = [cell for cell in order.cells if order.cell_fingerprint(cell) not in there]
    for recipe in _recipes(order, todo):
        check_trainable(recipe, order.run_options)
    if order.claim.reads:
        for name in {cell.point[order.claim.reads] for cell in todo}:
            datasets.examples(name)


def _recipes(order: Order, cells: Sequence[Cell]) -> Iterator[Recipe]:
    """Yield what is trained for these cells."""
    if order.claim.recipes:
        for cell in cells:
            yield from order.claim.recipes(order.setting(cell), cell.seed).values()


def measure(order: Order) -> dict[str, Any]:
    """Return the document of an order, from a finished run of it or from a new one."""
    _check(order)
    tags = {"fingerprint": order.fingerprint, "code": order.judged_by, "scale": order.scale}
    waiting = f"Another process measures the same settings of {order.name}; waiting for it."
    with recovery.one_at_a_time(f"{order.kind}-{order.fingerprint}", waiting):
        anew = order.run_options.force or order.cells_there is not None
        same = [] if anew else history.rows(None, kind=order.kind, **tags)
        done = [row for row in same if row.status == "FINISHED"]
        if done:
            return documents.judge_again(done[0], bool(order.differing)) | {"reused": True}
        if stand_in := _stand_in(order):
            return _document_of_cells(order, stand_in) | {"reused": True}
        broken = [row.id for row in same if row.status in ("KILLED", "FAILED")]
        return documents.document(history.row(_record(order, tags, broken[0] if broken else None)))


def _stand_in(order: Order) -> history.Row | None:
    """Return the newest run that took long for the same settings and seeds, wherever it was."""
    if order.run_options.force or not order.sparing:
        return None
    same = {"fingerprint": order.fingerprint, "scale": order.scale}
    return next(iter(history.everyones(kind=order.kind, **same)), None)


def _document_of_cells(order: Order, row: history.Row) -> dict[str, Any]:
    """Return the document of a run with numbers and verdict made of its cells by today's rules."""
    values = values_of_cells(order, row)
    if values is None:
        return documents.judge_again(row, bool(order.differing))
    same = row.tags.get(CELL_CODE) == order.code and CODES not in row.tags
    return (
        documents.document(row)
        | {"metrics": spreads(summary(values), order.seeds)}
        | order.claim.judge(values, order.scale, bool(order.differing))
        | ({} if same else {"other_code": True})
    )


def values_of_cells(order: Order, row: history.Row) -> dict[str, list[float]] | None:
    """Return by metric one value a seed, made of the cells of a run; None where they are not here.

    The run is one of the order.
    """
    ids = documents.cell_ids(row.id)
    every = {each.id: each for each in history.everyones(kind="setting", claim=order.name)}
    if not ids or not set(ids) <= every.keys():
        return None
    cells = {order.cell_fingerprint(cell): cell for cell in order.cells}
    measured = [
        Measured(cells[every[i].tags["fingerprint"]], *curves, i)
        for i, curves in history.curves(ids).items()
    ]
    return by_metric(seed_metrics(order, measured))


def seed_metrics(order: Order, measured: Sequence[Measured]) -> dict[int, dict[str, float]]:
    """Return by seed the numbers that the claim makes of what was measured with it."""
    return {
        seed: order.claim.metrics([m for m in measured if m.cell.seed == seed])
        for seed in order.each_seed
    }


def by_metric(of_seeds: Mapping[int, Mapping[str, float]]) -> dict[str, list[float]]:
    """Return by metric one value a seed, of the seeds that have it."""
    values: dict[str, list[float]] = {}
    for metrics in of_seeds.values():
        for key, value in metrics.items():
            values.setdefault(key, []).append(value)
    return values


def _finished_cells(order: Order) -> dict[str, str]:
    """Return by fingerprint the runs of cells that need not be measured."""
    if order.cells_there is not None:
        return dict(order.cells_there)
    if order.run_options.force:
        return {}
    find = history.finished_anywhere if order.sparing else history.finished
    return find(order.name, order.code)


def _record(order: Order, tags: Mapping[str, str], resume: str | None) -> str:
    """The id of the run that holds all of the order; `resume` is one that was killed."""
    _check_here(order)
    found, started = order.claim, time.perf_counter() - _busy(resume)
    with tracked_run.tracked(
        documents.run_name(order),
        experiment=found.family,
        kind=order.kind,
        params=order.params,
        tags={
            **tags,
            CELL_CODE: order.code,
            "claim": order.name,
            "source": found.source,
            "seeds": str(order.seeds),
            "as_stated": str(order.as_stated),
        },
        resume=resume,
    ) as run:
        try:
            measured, before_s = _cells(order, run, resume is not None)
        except Paused:
            run.tag(BUSY, f"{time.perf_counter() - started:.1f}")
            raise
        values = _log_seeds(order, measured, run)
        judgement = found.judge(values, order.scale, bool(order.differing))
        table = documents.rows(order, measured)
        run.tag(store.NOTE, documents.note(order, run.id, judgement, values, table))
        run.text(documents.text(table), documents.CSV)
        for point, part in grid.parts(measured, order.varied):
            run.figure(found.figure(part), f"{' '.join(['figure', *point])}.png")
        for key, value in judgement.items():
            run.tag(key, value)
        run.log(
            summary(values)
            | {"total/cells": len(measured), "total/points": sum(len(m.steps) for m in measured)}
            | {"wall_s": time.perf_counter() - started + before_s}
        )
    return run.id


def _taken_over(order: Order, run_ids: Collection[str], run: tracked_run.Run) -> float:
    """Return the seconds that cells took which were measured elsewhere or by other code.

    The run names the codes, and how many cells each of them measured.
    """
    if not order.sparing and order.cells_there is None:
        return 0.0
    every = history.everyones(kind="setting", claim=order.name)
    rows = [row for row in every if row.id in run_ids and row.tags.get(store.PARENT) != run.id]
    codes = Counter(row.tags["code"] for row in rows)
    if set(codes) - {order.code}:
        run.tag(CODES, ", ".join(f"{code} ({n} settings)" for code, n in sorted(codes.items())))
    return history.measured_s(rows)


def _busy(resume: str | None) -> float:
    """Seconds that the slices of a run have taken so far."""
    return float(history.row(resume).tags.get(BUSY, 0)) if resume else 0.0


def _log_seeds(
    order: Order, measured: Sequence[Measured], run: tracked_run.Run
) -> dict[str, list[float]]:
    """One value a seed of every metric, logged with the seed as step."""
    of_seeds = seed_metrics(order, measured)
    for seed, metrics in of_seeds.items():
        run.log({f"{claim.SEED}{key}": value for key, value in metrics.items()}, seed)
    return by_metric(of_seeds)


def _cells(order: Order, run: tracked_run.Run, resumed: bool) -> tuple[list[Measured], float]:
    """Every cell of the order, in its order: found finished, or measured and recorded now.

    And the seconds in which those were measured that are of other runs' making.
    """
    if resumed and isinstance(order.claim, claim.Theorem):  # an experiment's go on
        _discard_half_written(run)
    cells = {order.cell_fingerprint(cell): cell for cell in order.cells}
    there = {print_: run_id for print_, run_id in _finished_cells(order).items() if print_ in cells}
    before_s = _taken_over(order, there.values(), run)
    histories = history.curves(list(there.values()))
    measured = {
        print_: Measured(cells[print_], *histories[run_id], run_id)
        for print_, run_id in there.items()
    }
    todo = [cell for print_, cell in cells.items() if print_ not in there]
    if there and todo:
        print(f"{len(there)} of {len(cells)} settings are recorded already.", file=sys.stderr)
    started = time.perf_counter()
    with progress_bar(order.name, len(cells), "settings/s") as advance:
        advance(len(there), np.nan)
        with contextlib.closing(
            _executor.measured(order, todo, run)
        ) as found:  # ends what it began
            for number, new in enumerate(found, 1):
                measured[order.cell_fingerprint(new.cell)] = new
                advance(1, number / (time.perf_counter() - started))
                order.run_options.pause(len(measured), len(cells), "settings")
    if todo:
        bulk.analyze()
    return [measured[print_] for print_ in cells], before_s


def _discard_half_written(run: tracked_run.Run) -> None:
    """Delete the children that a kill interrupted: they will be measured again."""
    for child in history.rows(None, **{store.PARENT: run.id}):
        if child.status != "FINISHED":
            store.client().delete_run(child.id)
