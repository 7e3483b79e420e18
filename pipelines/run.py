"""The spine: one recipe, its data, its network, its training, as one tracked run. Read this first.

Recipe -> data.load -> Splits -> train(log=run.log) -> mlruns/ -> report
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines import data, history, lr, provenance, quiet, tracking
from pipelines.errors import check_counts
from pipelines.recipes import Recipe, digest
from pipelines.verdict import spreads, summary

EXPERIMENT = "trained networks"
PER_STEP = ("batch_loss", "learning_rate")  # curves of a run, not results of it


@dataclass(frozen=True)
class Result:
    """The final numbers of a training run, and whether an earlier run already had them."""

    run_id: str
    metrics: dict[str, float]
    reused: bool = False


def run(
    recipe: Recipe,
    *,
    parent: tracking.Run | None = None,
    kind: str = "training",
    force: bool = False,
    test: bool = True,
    title: str | None = None,
) -> Result:
    """Train as the recipe says and record it; a finished run of the same recipe is used again.

    `force` trains anyway. `test` False leaves the test set unread, as searches must.
    """
    tags = {"fingerprint": recipe.fingerprint, "code": provenance.code()}
    done = [] if force else history.rows(kind=kind, **tags)
    if done:
        return Result(done[0].id, _final(done[0].metrics), reused=True)
    quiet.tensorflow()
    from pipelines import devices
    from pipelines.train import plan, serving_model, train

    strategy = devices.strategy(recipe)
    splits = data.load(recipe.data, recipe.train_examples, recipe.data_args)
    rates = plan(recipe, len(splits.train))
    started = time.perf_counter()
    with tracking.tracked(
        title or f"{recipe.name} seed {recipe.seed}",
        experiment=parent.experiment if parent else EXPERIMENT,  # the UI nests within one
        kind=kind,
        params=recipe.flat(),
        tags={**tags, "recipe": recipe.name, "source": recipe.source},
        parent=parent,
    ) as tracked:
        tracked.dataset(recipe.data, splits.digest, len(splits.train), splits.source)
        tracked.figure(lr.figure(rates), "learning_rate.png")
        with tracking.system_metrics(tracked):
            trained = train(recipe, splits, rates, strategy, tracked.log, test=test)
        tracked.tag("device", trained.device)
        tracked.model(serving_model(trained.model, splits.train))
        metrics = trained.metrics | {"wall_s": time.perf_counter() - started}
        tracked.log({"wall_s": metrics["wall_s"]})
    return Result(tracked.id, metrics)


def _final(metrics: Mapping[str, float]) -> dict[str, float]:
    """The final numbers among a run's metrics: no per-step curves, no system metrics."""
    return {k: v for k, v in metrics.items() if "/" not in k and k not in PER_STEP}


def repeat(recipe: Recipe, seeds: int | None = None, force: bool = False) -> dict[str, Any]:
    """The JSON document of a recipe run once, or with seeds 0, 1, ... under one parent run."""
    if seeds is None:
        single = run(recipe, force=force)
        return _document(recipe, single, 1)
    check_counts(seeds=seeds)
    tags = {
        "fingerprint": digest([recipe.override(seed=seed).fingerprint for seed in range(seeds)]),
        "code": provenance.code(),
    }
    done = [] if force else history.rows(kind="seeds", **tags)
    if done:
        return _document(recipe, Result(done[0].id, done[0].metrics, reused=True), seeds)
    with tracking.tracked(
        f"{recipe.name} {seeds} seeds",
        experiment=EXPERIMENT,
        kind="seeds",
        params=recipe.flat() | {"seeds": seeds},
        tags={**tags, "recipe": recipe.name, "source": recipe.source},
    ) as parent:
        results = [
            run(recipe.override(seed=seed), parent=parent, force=force) for seed in range(seeds)
        ]
        stats = summary({key: [r.metrics[key] for r in results] for key in results[0].metrics})
        parent.log(stats)
    return _document(recipe, Result(parent.id, stats), seeds)


def _document(recipe: Recipe, result: Result, seeds: int) -> dict[str, Any]:
    return {
        "recipe": recipe.name,
        "fingerprint": recipe.fingerprint,
        "seeds": seeds,
        "metrics": spreads(result.metrics, seeds),
        "run_id": result.run_id,
        "reused": result.reused,
    }
