"""The spine: one recipe, its data, its network, its training, as one tracked run. Read this first.

Recipe -> data.load -> Splits -> train(log=run.log) -> mlruns/ -> report
"""

import time
from dataclasses import dataclass
from typing import Any

from pipelines import data, history, lr, quiet, tracking
from pipelines.errors import UserError
from pipelines.recipes import Recipe
from pipelines.verdict import summary

EXPERIMENT = "trained networks"


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
    tags = {"fingerprint": recipe.fingerprint, "recipe": recipe.name, "source": recipe.source}
    done = [] if force else history.rows(kind=kind, fingerprint=recipe.fingerprint)
    if done:
        return Result(done[0].id, done[0].metrics, reused=True)
    quiet.tensorflow()
    from pipelines import devices
    from pipelines.train import plan, serving_model, train

    strategy = devices.strategy(recipe)
    splits = data.load(recipe.data, recipe.train_examples)
    rates = plan(recipe, len(splits.train))
    started = time.perf_counter()
    with tracking.tracked(
        title or f"{recipe.name} seed {recipe.seed}",
        experiment=parent.experiment if parent else EXPERIMENT,  # the UI nests within one
        kind=kind,
        params=recipe.flat(),
        tags=tags,
        parent=parent,
    ) as tracked:
        tracked.dataset(recipe.data, splits.digest, len(splits.train))
        tracked.figure(lr.figure(rates), "learning_rate.png")
        with tracking.system_metrics(tracked):
            trained = train(recipe, splits, rates, strategy, tracked.log, test=test)
        tracked.tag("device", trained.device)
        tracked.model(serving_model(trained.model, splits.train))
        metrics = trained.metrics | {"wall_s": time.perf_counter() - started}
        tracked.log({"wall_s": metrics["wall_s"]})
    return Result(tracked.id, metrics)


def repeat(recipe: Recipe, seeds: int | None = None, force: bool = False) -> dict[str, Any]:
    """The JSON document of a recipe run once, or with seeds 0, 1, ... under one parent run."""
    if seeds is None:
        single = run(recipe, force=force)
        return _document(recipe, {k: [v] for k, v in single.metrics.items()}, single)
    if seeds < 1:
        raise UserError(f"seeds must be >= 1. Received: seeds={seeds}. Set --seeds 1 or more.")
    with tracking.tracked(
        f"{recipe.name} {seeds} seeds",
        experiment=EXPERIMENT,
        kind="seeds",
        params=recipe.flat() | {"seeds": seeds},
        tags={"recipe": recipe.name, "source": recipe.source},
    ) as parent:
        results = [
            run(recipe.override(seed=seed), parent=parent, force=force) for seed in range(seeds)
        ]
        values = {key: [r.metrics[key] for r in results] for key in results[0].metrics}
        parent.log(summary(values))
    everything = all(result.reused for result in results)
    return _document(recipe, values, Result(parent.id, {}, reused=everything))


def _document(recipe: Recipe, values: dict[str, list[float]], result: Result) -> dict[str, Any]:
    stats = summary(values)
    metrics = {
        key: {"mean": stats[key], "sd": stats.get(f"sd/{key}"), "n": len(column)}
        for key, column in sorted(values.items())
        if "/" not in key
    }
    return {
        "recipe": recipe.name,
        "fingerprint": recipe.fingerprint,
        "metrics": metrics,
        "run_id": result.run_id,
        "reused": result.reused,
    }
