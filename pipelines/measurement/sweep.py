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

from pipelines.errors import WORKERS, UserError, check_counts
from pipelines.measurement import cells, claim, claim_catalog, grid
from pipelines.measurement.claim_run import json_document, page, settings_table
from pipelines.measurement.grid import Cell, Measured
from pipelines.measurement.plan import (
    ONLY_SEED,
    MeasurementPlan,
    runs_that_count,
    values_by_metric,
)
from pipelines.measurement.workers import executor
from pipelines.running.run_options import DEFAULT, RunOptions
from pipelines.running.seed_statistics import summarize
from pipelines.runtime import signals
from pipelines.runtime.progress import progress_bar
from pipelines.runtime.provenance import count_cores
from pipelines.tracking import finished_runs, history, recovery, store, tracked_run
from pipelines.tracking.tracked_run import Run

EXPENSIVE_S = 600  # what took less is measured anew where the code is another
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
) -> dict[str, Any]:
    """Measure a claim over seeds 0, 1, ... or one seed alone, record it, return its document.

    It is not measured again when a finished run has the same settings, seeds and code, or when it
    is expensive and was measured anywhere, by whatever code; but with `run_options.force`. The
    scoreboard takes runs with the claim's own settings and seeds.
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
    return measure(dataclasses.replace(plan, reuse_anywhere=_is_expensive(plan)))


def _is_expensive(plan: MeasurementPlan) -> bool:
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
    values, altered = values_of_cells(plan, row), bool(plan.changed_settings)
    if values is None:
        return json_document.rejudged_document(row, altered)
    document = json_document.derived_document(row, values, altered)  # names cells of other code
    other_code = bool(plan.other_codes([row.tags.get(cells.CELL_CODE)]))
    return document | ({"other_code": True} if other_code else {})


def values_of_cells(plan: MeasurementPlan, row: history.Row) -> dict[str, list[float]] | None:
    """Return by metric one value a seed, made of the cells of a run of the plan.

    Return None if some of the cells are not in this store.
    """
    measured = cells.read_plan(plan, row.id)
    return None if measured is None else plan.values(measured)


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
    began_ms, started = int(time.time() * 1000), time.perf_counter()
    is_claim = plan.kind == "claim"
    stands = {store.STANDING: f"{plan.name} {store.UNCOUNTED}"} if is_claim else {}
    with tracked_run.track(
        page.run_name(plan),
        experiment=plan.claim.family,
        kind=plan.kind,
        params=plan.params,
        tags={
            **tags,
            **stands,
            cells.CELL_CODE: plan.code,
            "claim": plan.name,
            "source": plan.claim.source,
            "seeds": str(plan.seeds),
            "as_stated": str(plan.is_as_stated),
        },
        resume=resume,
    ) as run:
        plan.claim.link_trainings(found.values(), run)
        measured = _collect_cells(plan, run, found)
        now_s = time.perf_counter() - started
        run.flush()  # its tags name trainings of other runs
        spans = [(m.start_ms, m.end_ms) for m in found.values()]
        spans += plan.claim.training_spans(measured, run.id)
        _record(plan, run, measured, now_s + count_seconds(spans, began_ms))
    cells.drop(plan, measured)
    if is_claim and plan.is_as_stated:
        _mark_standings(plan.name)
    return run.id


def _mark_standings(name: str) -> None:
    """Tag which of your finished runs of a claim counts, where their tags say otherwise."""
    rows = history.rows(kind="claim", claim=name)
    counts = runs_that_count(rows).get(name)
    for row in rows:
        standing = f"{name} {store.YOURS if row is counts else store.UNCOUNTED}"
        if row.tags.get(store.STANDING) != standing:
            store.client().set_tag(row.id, store.STANDING, standing)


def _record(plan: MeasurementPlan, run: Run, measured: Sequence[Measured], wall_s: float) -> None:
    """Write into a run its cells, the numbers that the claim makes of them, and the verdict."""
    codes = Counter(m.code for m in measured)
    if plan.other_codes(codes):
        counts = (f"{code} ({n} settings)" for code, n in sorted(codes.items()))
        run.tag(json_document.MEASURED_BY, ", ".join(counts))
    of_seeds = plan.metrics_by_seed(measured)
    for seed, metrics in of_seeds.items():
        run.log({f"{claim.SEED_PREFIX}{key}": value for key, value in metrics.items()}, seed)
    values = values_by_metric(of_seeds)
    judgement = plan.judge(values)
    table = settings_table.rows(plan.claim, measured)
    curves = page.curves(plan, measured) if plan.kind == "claim" else {}
    for name, (steps, numbers) in curves.items():
        run.log_curve(name, steps, numbers)
    summary = summarize(values) | {"wall_s": wall_s, "total/cells": len(measured)}
    summary |= {"total/points": sum(len(m.steps) for m in measured)}
    logged = [*curves, *summary, *(f"{claim.SEED_PREFIX}{key}" for key in values)]
    _name_arms(plan, run.id)
    run.tag(store.RESULT, page.decisive_numbers(plan, values))
    note = page.write_note(plan, run.id, judgement, values, table, metrics=logged)
    run.tag(store.NOTE, note)
    run.bytes(cells.pack(plan, measured), cells.TABLE)
    run.text(settings_table.write(table), settings_table.FILE)
    for point, part in grid.split_by(measured, plan.varied):
        run.figure(plan.claim.draw(plan, part, run.id), f"{' '.join([page.FIGURE, *point])}.png")
    for key, value in claim.tags_of(judgement).items():
        run.tag(key, value)
    run.log(summary)


def _name_arms(plan: MeasurementPlan, run_id: str) -> None:
    """Tag the trainings of a run that have no name yet with what the claim calls them."""
    arms = plan.arm_names
    if len({*arms.values()}) < 2:
        return
    for row in history.trainings_of(run_id):
        if store.ARM not in row.tags and row.tags.get("fingerprint") in arms:
            with signals.defer():
                store.client().set_tag(row.id, store.ARM, arms[row.tags["fingerprint"]])


def count_seconds(spans: Iterable[tuple[int, int]], until_ms: int) -> float:
    """Return the seconds before a moment that lie in spans; what is in several counts once."""
    seconds, counted_ms = 0.0, 0
    for start_ms, end_ms in sorted((start, min(end, until_ms)) for start, end in spans):
        seconds += max(0, end_ms - max(start_ms, counted_ms)) / 1000
        counted_ms = max(end_ms, counted_ms)
    return seconds


def _collect_cells(plan: MeasurementPlan, run: Run, found: dict[str, Measured]) -> list[Measured]:
    """Return every cell of the plan in order, of those `found` or measured now."""
    settings = _SettingRuns(plan, run) if plan.kind == "sweep" else None
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


class _SettingRuns:
    """The settings of a sweep as runs of their own, which MLflow's table and charts compare.

    They are children of the sweep's run, one a cell; those that are there are not written again.
    """

    def __init__(self, plan: MeasurementPlan, run: Run) -> None:
        self.plan, self.run = plan, run
        there = history.rows(None, kind="setting", **{store.PARENT: run.id})
        for row in (row for row in there if row.status != "FINISHED"):  # left by a kill
            store.client().delete_run(row.id)
        self.written = {row.tags["fingerprint"] for row in there if row.status == "FINISHED"}

    def write(self, measured: Iterable[Measured]) -> None:
        """Write a run for each of these cells: its settings, its curves over the inner axis."""
        for m in measured:
            fingerprint = self.plan.cell_fingerprint(m.cell)
            if fingerprint in self.written:
                continue
            tags = {"kind": "setting", "claim": self.plan.name, "code": m.code}
            tags["fingerprint"] = fingerprint
            if grid.ASSUMPTION in m.curves:  # whether the premise is in force
                uniform = m.holds.all() or not m.holds.any()
                tags[grid.ASSUMPTION] = str(bool(m.holds.all())) if uniform else "at some steps"
            finished_runs.write(
                grid.cell_title(m.cell, self.plan.axes),
                experiment=self.run.experiment,
                parent=self.run.id,
                params=m.cell.params,
                tags=tags,
                steps=m.steps.tolist(),
                curves=m.curves,
                start_ms=m.start_ms,
                end_ms=m.end_ms,
            )
            self.written.add(fingerprint)
