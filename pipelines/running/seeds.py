"""A recipe repeated over seeds: one run above the trainings of all seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.errors import UserError, check_counts
from pipelines.recipes.recipe import Recipe
from pipelines.running import existing, training_page
from pipelines.running.existing import Result
from pipelines.running.run import EXPERIMENT, check_trainable, run
from pipelines.running.run_options import DEFAULT, RunOptions
from pipelines.running.seed_statistics import format_spread, metric_spreads, summarize
from pipelines.runtime import provenance
from pipelines.runtime.provenance import digest
from pipelines.tracking import history, mlflow_ui, recovery, store, tracked_run


def repeat(
    recipe: Recipe,
    seeds: int | None = None,
    run_options: RunOptions = DEFAULT,
    run_as: str | None = None,
) -> dict[str, Any]:
    """Return the JSON document of a recipe run once, or with seeds 0, 1, ... under one parent run.

    `run_as` is how a person named it: what was interrupted under that name is not lost unnoticed.
    """
    if seeds is not None and recipe.seed:
        raise UserError(
            f"Several seeds are 0, 1, ... . Received: --seeds {seeds} with --seed {recipe.seed}. "
            "Leave one of the two out."
        )
    tags = {store.RUN_AS: run_as} if run_as else {}
    all_of_them = [recipe] if seeds is None else [recipe.override(seed=s) for s in range(seeds)]
    for each in all_of_them if run_as and not run_options.new_run else []:
        existing.refuse_changed(each, str(run_as))
    if seeds is None:
        return _document(recipe, run(recipe, run_options, tags=tags), 1)
    check_counts(seeds=seeds)
    fingerprint = digest([each.fingerprint for each in all_of_them])
    waiting = f"Another process trains {recipe.name} with the same {seeds} seeds; waiting for it."
    with recovery.one_at_a_time(f"seeds-{fingerprint}", waiting):
        return _document(recipe, _over_seeds(all_of_them, fingerprint, run_options, tags), seeds)


def _over_seeds(
    recipes: Sequence[Recipe], fingerprint: str, run_options: RunOptions, tags: Mapping[str, str]
) -> Result:
    """Return the run above the trainings of a recipe with several seeds, made before or now."""
    recipe, seeds = recipes[0], len(recipes)
    identity = existing.identity(fingerprint)
    rows = history.rows(None, kind="seeds", **identity)
    done = [row for row in rows if row.status == "FINISHED"]
    if done and not run_options.force:
        return Result(done[0].id, done[0].metrics, reused=True)
    for each in recipes:
        check_trainable(each, run_options)
    broken = rows and rows[0].status in ("KILLED", "FAILED") and not run_options.new_run
    with tracked_run.track(
        f"{recipe.name} {seeds} seeds",
        experiment=EXPERIMENT,
        kind="seeds",
        params=recipe.flat() | {"seeds": seeds},
        tags={**identity, "recipe": recipe.name, "source": recipe.source},
        resume=rows[0].id if broken else None,
    ) as parent:
        results: list[Result] = []
        for each in recipes:
            results.append(run(each, run_options, parent=parent, tags=tags))
            if not results[-1].reused:
                run_options.pause(len(results), seeds, "seeds")
        stats = summarize({key: [r.metrics[key] for r in results] for key in results[0].metrics})
        parent.log(stats)
        parent.tag(store.RESULT, training_page.describe_errors(stats))
        chart = mlflow_ui.learning_curves([each.run_id for each in results], "recipe")
        parent.tag(store.NOTE, _note(recipe, metric_spreads(stats, seeds), chart))
    return Result(parent.id, stats)


def _note(recipe: Recipe, metrics: Mapping[str, Mapping[str, Any]], chart: str) -> str:
    """Return Markdown for the run over seeds: reported, measured, and how to repeat it."""
    reported = [f"`{key}` {value:g}" for key, value in recipe.reported.items()]
    means = {key: metric["mean"] for key, metric in metrics.items()}
    lines = [
        f"**{training_page.describe_errors(means)}**, the means of its seeds",
        f"{recipe.name} ({recipe.source})",
        *([f"Reported: {'; '.join(reported)}"] if reported else []),
        f"[The learning curves of its seeds]({chart})",
        f"Repeat: `python -m {provenance.tags()['mlflow.source.name']} --force`",
        "\n".join(f"- `{key}` {format_spread(metric)}" for key, metric in metrics.items()),
    ]
    return "\n\n".join(lines)


def _document(recipe: Recipe, result: Result, seeds: int) -> dict[str, Any]:
    return {
        "recipe": recipe.name,
        "fingerprint": recipe.fingerprint,
        "seeds": seeds,
        "metrics": metric_spreads(result.metrics, seeds),
        "run_id": result.run_id,
        "reused": result.reused,
    }
