"""A recipe repeated over seeds: one run above the trainings of all seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.errors import UserError, check_counts
from pipelines.recipes import catalog
from pipelines.recipes.recipe import Recipe
from pipelines.running import existing, training_page
from pipelines.running.existing import Result
from pipelines.running.run import EXPERIMENT, check_trainable, run
from pipelines.running.run_options import DEFAULT, RunOptions
from pipelines.running.seed_statistics import (
    format_mean,
    metric_spreads,
    read_table,
    summarize,
    write_table,
)
from pipelines.runtime import provenance
from pipelines.runtime.provenance import digest
from pipelines.tracking import history, mlflow_ui, recovery, store, tracked_run
from pipelines.tracking.history import Row

KIND = "seeds"  # of the run above the trainings
TABLE = "statistics.csv"  # its artifact: mean, deviation and intervals of every metric


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
        result = run(recipe, run_options, tags=tags)
        return _document(recipe, 1, result.run_id, metric_spreads(result.metrics, 1), result.reused)
    check_counts(seeds=seeds)
    fingerprint = digest([each.fingerprint for each in all_of_them])
    waiting = f"Another process trains {recipe.name} with the same {seeds} seeds; waiting for it."
    with recovery.one_at_a_time(f"seeds-{fingerprint}", waiting):
        return _over_seeds(all_of_them, fingerprint, run_options, tags)


def _over_seeds(
    recipes: Sequence[Recipe], fingerprint: str, run_options: RunOptions, tags: Mapping[str, str]
) -> dict[str, Any]:
    """Return the document of the trainings of a recipe with several seeds, made before or now."""
    recipe, seeds = recipes[0], len(recipes)
    identity = existing.identity(fingerprint)
    rows = history.rows(None, kind=KIND, **identity)
    done = [row for row in rows if row.status == "FINISHED"]
    if done and not run_options.force:
        return _document(recipe, seeds, done[0].id, spreads(done[0]), reused=True)
    for each in recipes:
        check_trainable(each, run_options)
    broken = rows and rows[0].status in ("KILLED", "FAILED") and not run_options.new_run
    said = catalog.title(recipe)
    with tracked_run.track(
        f"{said}, {seeds} seed{'s' * (seeds > 1)}",
        experiment=EXPERIMENT,
        kind=KIND,
        params=recipe.flat() | {"seeds": seeds},
        tags={**identity, "recipe": recipe.name, "source": recipe.source, store.TITLE: said},
        resume=rows[0].id if broken else None,
    ) as parent:
        results: list[Result] = []
        for each in recipes:
            title = f"seed {each.seed} {said}"
            results.append(run(each, run_options, parent=parent, title=title, tags=tags))
            if not results[-1].reused:
                run_options.pause(len(results), seeds, "seeds")
        values = {key: [r.metrics[key] for r in results] for key in results[0].metrics}
        metrics = metric_spreads(summarize(values), seeds)
        parent.log({key: metric["mean"] for key, metric in metrics.items()})
        parent.text(write_table(metrics), TABLE)
        parent.tag(store.RESULT, _describe_errors(metrics))
        chart = mlflow_ui.learning_curves([history.row(each.run_id) for each in results])
        parent.tag(store.NOTE, _note(recipe, metrics, chart))
    return _document(recipe, seeds, parent.id, metrics)


def trainings(row: Row) -> list[Row]:
    """Return the trainings behind a run over seeds, seed by seed; of a training, itself."""
    if row.tags["kind"] != KIND:
        return [row]
    stated, newest = history.without_seed(row.params), dict[int, Row]()
    for each in history.rows(kind="training", recipe=row.tags["recipe"]):
        if history.without_seed(each.params) == stated:
            newest.setdefault(int(each.params["seed"]), each)
    return [newest[seed] for seed in range(int(row.params["seeds"])) if seed in newest]


def spreads(row: Row) -> dict[str, dict[str, Any]]:
    """Return mean, sd, n, ci_low, ci_high of every metric of a recorded run.

    Of a run over seeds they are in its table, or, where an export has left that out, those of its
    trainings; of a claim, and of runs over seeds before 0.3, among its metrics. Of a single run the
    numbers are the means.
    """
    count = int(row.params.get("seeds", 1))
    if row.tags.get("kind") == KIND and not any(key.startswith("n/") for key in row.metrics):
        if text := store.artifact(row.id, TABLE):
            return read_table(text.decode())
        found = trainings(row)
        if len(found) == count:
            values = {key: [each.metrics[key] for each in found] for key in row.metrics}
            return metric_spreads(summarize(values), count)
    return metric_spreads(row.metrics, count)


def _note(recipe: Recipe, metrics: Mapping[str, Mapping[str, Any]], chart: str) -> str:
    """Return Markdown for the run over seeds: reported, measured, and how to repeat it."""
    reported = [f"`{key}` {value:g}" for key, value in recipe.reported.items()]
    rows = (f"| `{key}` | {format_mean(metric)} |" for key, metric in metrics.items())
    lines = [
        f"**{_describe_errors(metrics)}**",
        f"{recipe.name} ({recipe.source})",
        *([f"Reported: {'; '.join(reported)}"] if reported else []),
        f"[The learning curves of its seeds, mean and band]({chart})",
        f"Repeat: `python -m {provenance.tags()['mlflow.source.name']} --force`",
        "\n".join(["| metric | mean ± sd |", "|---|---|", *rows]),
    ]
    return "\n\n".join(lines)


def _describe_errors(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    """Return `error: test 4.9 ± 0.2 %, validation 5.1 ± 0.1 %, best 4.7 ± 0.1 %, 3 seeds`."""
    means, sds = ({k: metric[each] for k, metric in metrics.items()} for each in ("mean", "sd"))
    count = max(metric["n"] for metric in metrics.values())
    return f"{training_page.describe_errors(means, sds)}, {count} seed{'s' * (count > 1)}"


def _document(
    recipe: Recipe, seeds: int, run_id: str, metrics: Mapping[str, Any], reused: bool = False
) -> dict[str, Any]:
    return {
        "recipe": recipe.name,
        "fingerprint": recipe.fingerprint,
        "seeds": seeds,
        "metrics": metrics,
        "run_id": run_id,
        "reused": reused,
    }
