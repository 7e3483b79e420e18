"""A claim measured over its grid: cells -> curves -> one table of a run -> numbers -> verdict.

`check` takes the grid that the claim states, `sweep` any other. Both skip the cells that a finished
run holds already, and both, killed and started again, end as if they had not been interrupted. Of a
sweep every cell is a run, too, so that MLflow's table and charts compare them.
"""

import contextlib
import dataclasses
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.errors import WORKERS, Paused, UserError, check_counts
from pipelines.measurement import (
    cells,
    claim,
    claim_catalog,
    grid,
    run_charts,
    setting_runs,
)
from pipelines.measurement.claim_run import json_document, note, settings_table, trainings
from pipelines.measurement.grid import Cell, Measured
from pipelines.measurement.plan import ONLY_SEED, MeasurementPlan
from pipelines.measurement.workers import executor
from pipelines.running.run_options import DEFAULT, RunOptions
from pipelines.running.seed_statistics import metric_spreads, summarize
from pipelines.runtime.progress import progress_bar
from pipelines.runtime.provenance import count_cores
from pipelines.tracking import history, recovery, store, tracked_run
from pipelines.tracking.tracked_run import Run

BUSY_S = "busy_s"  # tag: seconds of the slices before
EXPENSIVE_S = 600  # of seconds: what took less is measured anew where the code is another
EXPENSIVE_SCALES = ("hours", "paper")  # scales that always take longer
SEED_PARAMS = ("seeds", ONLY_SEED)


def check(
    name: str,
    scale: str,
    settings: Any,
    seeds: int | None = None,
    *,
    run_options: RunOptions = DEFAULT,
    only_seed: int | None = None,
    reuse_anywhere: bool = False,
) -> dict[str, Any]:
    """Measure a claim over seeds 0, 1, ... or one seed alone, record it, return its document.

    It is not measured again when a finished run has the same settings, seeds and code, unless
    `run_options.force`; nor, `reuse_anywhere`, when it is expensive and was measured anywhere by
    whatever code. The scoreboard takes runs with the claim's own settings and seeds.
    """
    plan = MeasurementPlan(
        name=name,
        scale=scale,
        settings=settings,
        seeds=_check_seeds(name, seeds) if only_seed is None else 1,
        first_seed=only_seed or 0,
        run_options=run_options,
        workers=1 if scale == "smoke" else count_cores(),  # a smoke test is over before that
    )
    return measure(dataclasses.replace(plan, reuse_anywhere=reuse_anywhere and is_expensive(plan)))


def is_expensive(plan: MeasurementPlan) -> bool:
    """Return whether a measurement takes long: by its scale, or as the same settings once did."""
    if plan.scale in EXPENSIVE_SCALES:
        return True
    alike = {key: str(value) for key, value in plan.params.items() if key not in SEED_PARAMS}
    return any(
        row.metrics.get("wall_s", 0) / int(row.tags["seeds"]) * plan.seeds >= EXPENSIVE_S
        for row in history.rows_with_evidence(kind="claim", claim=plan.name, scale=plan.scale)
        if {key: value for key, value in row.params.items() if key not in SEED_PARAMS} == alike
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

    `workers` processes of this machine measure it, or the workers of the Dask `scheduler`; what is
    recorded is the same.
    """
    settings, varied = grid.apply_specs(claim_catalog.get_settings(name, scale), specs)
    _check_workers(name, scheduler, workers)
    workers = count_cores() if workers is None else workers
    check_counts(WORKERS, workers=workers)
    return measure(
        MeasurementPlan(
            name=name,
            scale=scale,
            settings=settings,
            seeds=_check_seeds(name, seeds),
            kind="sweep",
            varied=varied,
            run_options=run_options,
            workers=workers,
            scheduler=scheduler,
        )
    )


def _check_workers(name: str, scheduler: str | None, workers: int | None) -> None:
    """Raise UserError for workers of a claim that trains, or beside those of a scheduler."""
    if scheduler is None and workers is None:
        return
    if claim_catalog.load(name).trains:
        who, given = "A cluster measures", f"--scheduler {scheduler}"
        if scheduler is None:
            who, given = "Workers measure", f"--workers {workers}"
        raise UserError(
            f"{who} theorems. Received: {given} for {name}, which trains networks. Leave it out: "
            "they are trained here, one after the other."
        )
    if scheduler is not None and workers is not None:
        raise UserError(
            "A cluster has its own workers. Received: --workers "
            f"{workers} with --scheduler {scheduler}. Leave one of the two out."
        )


def _check_seeds(name: str, seeds: int | None) -> int:
    n = claim_catalog.load(name).seeds if seeds is None else seeds
    check_counts(seeds=n)
    return n


def _recipes(plan: MeasurementPlan, cells: Sequence[Cell]) -> Iterator[Any]:
    """Yield what is trained for these cells."""
    for cell in cells:
        yield from plan.arms(cell).values()


def measure(plan: MeasurementPlan, given: Mapping[str, Measured] | None = None) -> dict[str, Any]:
    """Return the document of a plan, from a finished run of it or from a new one.

    With cells `given`, by fingerprint, these make a new run, and none is measured.
    """
    plan.claim.check_recipes(_recipes(plan, plan.cells))
    tags = {"fingerprint": plan.fingerprint, "code": plan.verdict_digest, "scale": plan.scale}
    waiting = f"Another process measures the same settings of {plan.name}; waiting for it."
    with recovery.one_at_a_time(f"{plan.kind}-{plan.fingerprint}", waiting):
        anew = plan.run_options.force or given is not None
        earlier = [] if anew else history.rows(None, kind=plan.kind, **tags)
        finished = next((row for row in earlier if row.status == "FINISHED"), None)
        if finished:
            document = json_document.rejudged_document(finished, bool(plan.changed_settings))
            return document | {"reused": True}
        if plan.reuse_anywhere and not plan.run_options.force:  # it takes long, wherever it was
            alike = {"fingerprint": plan.fingerprint, "scale": plan.scale}
            for row in history.rows_with_evidence(kind=plan.kind, **alike):
                return _rejudge(plan, row) | {"reused": True}
        broken = (row.id for row in earlier if row.status in ("KILLED", "FAILED"))
        run_id = _measure_and_record(plan, tags, given, resume=next(broken, None))
        return json_document.rejudged_document(history.row(run_id), bool(plan.changed_settings))


def _rejudge(plan: MeasurementPlan, row: history.Row) -> dict[str, Any]:
    """Return the document of a run of a plan, with numbers and verdict by the rules of today."""
    values = values_of_cells(plan, row)
    if values is None:
        return json_document.rejudged_document(row, bool(plan.changed_settings))
    document = json_document.claim_document(row)  # which names cells of other code
    document["metrics"] = metric_spreads(summarize(values), plan.seeds)
    document |= json_document.judge(plan.claim, values, plan.scale, bool(plan.changed_settings))
    other_code = row.tags.get(cells.CELL_CODE) not in plan.codes
    return document | ({"other_code": True} if other_code else {})


def values_of_cells(plan: MeasurementPlan, row: history.Row) -> dict[str, list[float]] | None:
    """Return by metric one value a seed, made of the cells of a run of the plan.

    Return None if some of the cells are not in this store.
    """
    measured = cells.read_plan(plan, row.id)
    return None if measured is None else values_by_metric(metrics_by_seed(plan, measured))


def metrics_by_seed(
    plan: MeasurementPlan, measured: Sequence[Measured]
) -> dict[int, dict[str, float]]:
    """Return by seed the numbers that the claim makes of what was measured with it."""
    return {
        seed: plan.claim.metrics([m for m in measured if m.cell.seed == seed])
        for seed in plan.seed_range
    }


def values_by_metric(of_seeds: Mapping[int, Mapping[str, float]]) -> dict[str, list[float]]:
    """Return by metric one value a seed, of the seeds that have it."""
    values: dict[str, list[float]] = {}
    for metrics in of_seeds.values():
        for key, value in metrics.items():
            values.setdefault(key, []).append(value)
    return values


def _measure_and_record(
    plan: MeasurementPlan,
    tags: Mapping[str, str],
    given: Mapping[str, Measured] | None,
    resume: str | None,
) -> str:
    """Return the id of the run that holds all of the plan; `resume` is one that was killed."""
    found = dict(cells.find(plan) if given is None else given)
    todo = [cell for key, cell in plan.cells_by_fingerprint.items() if key not in found]
    plan.claim.check_trainable(_recipes(plan, todo), plan.run_options)
    if reads := plan.claim.reads:
        for name in {str(cell.point[reads]) for cell in todo}:
            plan.claim.require(name)
    earlier_s = float(history.row(resume).tags.get(BUSY_S, 0)) if resume else 0.0
    started = time.perf_counter() - earlier_s
    with tracked_run.track(
        note.run_name(plan),
        experiment=plan.claim.family,
        kind=plan.kind,
        params=plan.params,
        tags={
            **tags,
            cells.CELL_CODE: plan.code,
            "claim": plan.name,
            "source": plan.claim.source,
            "seeds": str(plan.seeds),
            "as_stated": str(plan.is_as_stated),
        },
        resume=resume,
    ) as run:
        before_s = measuring_seconds(found.values())
        plan.claim.link_trainings(found.values(), run)
        try:
            measured = _collect_cells(plan, run, found)
        except Paused:
            run.tag(BUSY_S, f"{time.perf_counter() - started:.1f}")
            raise
        wall_s = time.perf_counter() - started + before_s
        _record(plan, run, measured, wall_s)
    cells.drop(plan, measured)
    return run.id


def _record(plan: MeasurementPlan, run: Run, measured: Sequence[Measured], wall_s: float) -> None:
    """Write into a run its cells, the numbers that the claim makes of them, and the verdict."""
    run.flush()  # its tags name trainings of other runs
    codes = Counter(m.code for m in measured)
    if set(codes) - plan.codes:
        counts = (f"{code} ({n} settings)" for code, n in sorted(codes.items()))
        run.tag(json_document.MEASURED_BY, ", ".join(counts))
    of_seeds = metrics_by_seed(plan, measured)
    for seed, metrics in of_seeds.items():
        run.log({f"{claim.SEED_PREFIX}{key}": value for key, value in metrics.items()}, seed)
    values = values_by_metric(of_seeds)
    judgement = plan.claim.judge(values, plan.scale, bool(plan.changed_settings))
    table = settings_table.rows(plan, measured)
    curves = run_charts.curves(plan, measured) if plan.kind == "claim" else {}
    for name, (steps, numbers) in curves.items():
        run.log_curve(name, steps, numbers)
    summary = summarize(values) | {"wall_s": wall_s, "total/cells": len(measured)}
    summary |= {"total/points": sum(len(m.steps) for m in measured)}
    logged = [*curves, *summary, *(f"{claim.SEED_PREFIX}{key}" for key in values)]
    trainings.name_arms(plan, run.id)
    run.tag(store.RESULT, note.decisive_numbers(plan, values))
    text = note.write(plan, run.id, judgement=judgement, values=values, table=table, metrics=logged)
    run.tag(store.NOTE, text)
    run.bytes(cells.pack(plan, measured), cells.TABLE)
    run.text(settings_table.write(table), settings_table.FILE)
    for point, part in grid.split_by(measured, plan.varied):
        run.figure(plan.draw(part, run.id), f"{' '.join([note.FIGURE, *point])}.png")
    for key, value in claim.tags_of(judgement).items():
        run.tag(key, value)
    run.log(summary)


def measuring_seconds(measured: Iterable[Measured]) -> float:
    """Return the seconds in which cells were measured; those at the same time share theirs."""
    seconds, until_ms = 0.0, 0
    for start_ms, end_ms in sorted({(m.start_ms, m.end_ms) for m in measured}):
        seconds += max(0, end_ms - max(start_ms, until_ms)) / 1000
        until_ms = max(end_ms, until_ms)
    return seconds


def _collect_cells(plan: MeasurementPlan, run: Run, found: dict[str, Measured]) -> list[Measured]:
    """Return every cell of the plan in order, of those `found` or measured now."""
    settings = setting_runs.SettingRuns(plan, run) if plan.kind == "sweep" else None
    todo = [cell for key, cell in plan.cells_by_fingerprint.items() if key not in found]
    if found and todo:
        print(f"{len(found)} of {len(plan.cells)} settings are recorded already.", file=sys.stderr)
    if settings:
        settings.write(found.values())
    started = time.perf_counter()
    measured = dict(found)
    with progress_bar(plan.name, len(plan.cells), "settings/s") as advance:
        advance(len(found), np.nan)
        with contextlib.closing(executor.measure_cells(plan, todo, run)) as batches:
            for batch in batches:
                cells.keep(plan, batch)
                measured |= {plan.cell_fingerprint(each.cell): each for each in batch}
                if settings:
                    settings.write(batch)
                new = len(measured) - len(found)
                advance(len(batch), new / (time.perf_counter() - started))
                plan.run_options.pause(len(measured), len(plan.cells), "settings")
    return [measured[key] for key in plan.cells_by_fingerprint]
