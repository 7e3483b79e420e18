"""A study summed up: best trial and gain, test error, report, pictures, and the JSON document."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from pipelines.errors import Diverged
from pipelines.measurement.claim_view import markdown_table
from pipelines.recipes import lr
from pipelines.recipes.catalog import get_recipe
from pipelines.recipes.recipe import Recipe
from pipelines.running.run import run
from pipelines.tracking import history, mlflow_ui, store, tracked_run
from tuning.analysis import figures, outcome, trial_results, tunability, tunability_report
from tuning.plan import OBJECTIVE, PLAN, TRIAL_ERROR, StudyPlan, changed_fields, count_steps
from tuning.search import spaces
from tuning.storage import copies, serving

TEST = "test_error_pct"
SHOWN = {"history", "slice"}  # figures that optuna-dashboard shows, too
ENDS = ("ci_low/test_gain_pct", "ci_high/test_gain_pct")  # of the gain in test error
ATTRIBUTES = ("device_s", "run_id", spaces.PUBLISHED, "diverged", "reason")  # shown of a trial


def write(study: Any, plan: StudyPlan, tracked: tracked_run.Run) -> None:
    """Write all about a study that has reached its goal into its run."""
    trials = study.get_trials(deepcopy=False)
    finished, best = trial_results.finished_trials(trials), trial_results.best_trial(trials)
    measured = tunability.measure(trials, chance_pct=plan.chance_pct)
    numbers = tunability_report.metrics(measured) | {"trials": float(len(finished))}
    if best is not None:
        # the validation error of the best is the least of many, so too low: for test errors both
        # are trained anew, with seeds that the search has not used; nothing else of a study reads
        # the test set, and one that is resumed reads it again when it has come to its new end
        numbers[f"best_{OBJECTIVE}"] = best_pct = trial_results.error_pct(best)
        errors, examples = _test_errors(plan, "best", plan.recipe_of(best), tracked)
        numbers[TEST] = mean(errors)
        if (paper := trial_results.paper_trial(trials)) is not None:
            start_pct = trial_results.error_pct(paper)
            numbers |= {f"baseline_{OBJECTIVE}": start_pct, "gain_pct": start_pct - best_pct}
            of_start, _ = _test_errors(plan, plan.start, plan.base, tracked)
            numbers[f"baseline_{TEST}"] = mean(of_start)
            interval, _ = outcome.gain_interval(of_start, errors, examples, "test")
            if interval is not None and best != paper:
                numbers |= dict(zip(ENDS, interval, strict=True))
        tracked.tag("best", override_flags(plan, best))
    tracked.log(numbers, len(finished))
    tracked.tag(store.NOTE, _note(plan, numbers, tracked.id, trials))
    report = tunability_report.markdown(measured, plan.trained_name, plan.start)
    tracked.text(report, "tunability.md")
    tracked.text(study.trials_dataframe(multi_index=False).to_csv(index=False), "trials.csv")
    tracked.text(copies.to_journal(study), copies.FILE)
    if charts := figures.optuna_charts(trials, measured, plan.start):
        tracked.text(figures.html_page(study.study_name, charts), "figures.html")
        serving.save_figures(study, {key: charts[key] for key in charts.keys() & SHOWN})
    pictures = figures.study_figures(measured, _schedules(plan, finished), start=plan.start)
    for name, figure in pictures.items():
        tracked.figure(figure, name)


def _test_errors(
    plan: StudyPlan, which: str, recipe: Recipe, tracked: tracked_run.Run
) -> tuple[list[float], int | None]:
    """Return the errors with seeds that the search has not used, and of how many test pictures.

    An error is 100 % where the loss diverges.
    """
    errors, examples = [], None
    for i in range(plan.seeds):
        anew = recipe.override(seed=recipe.seed + plan.seeds + i)
        try:
            title = f"{which} schedule, seed {anew.seed}"
            result = run(anew, parent=tracked, title=title)
            errors.append(result.metrics[TEST])
            examples = outcome.count_examples(result.run_id, "test")
            if result.reused:  # the child of another run: say which
                tracked.tag(f"reused.{result.run_id}", title)
        except Diverged:
            errors.append(trial_results.DIVERGED_PCT)
    return errors, examples


def override_flags(plan: StudyPlan, trial: Any) -> str:
    """Return the flags that make `python -m pipelines run RECIPE --scale S` train as a trial did.

    At the recipe's whole length; of a proxy, its schedule for the recipe that it stands for.
    """
    tried = plan.recipe_of(trial, plan.full)
    published = get_recipe(plan.recipe, plan.target_scale)
    if plan.proxy is None:
        return tried.flags(published)
    carried = _transfer(published, tried, get_recipe(plan.proxy, plan.scale))
    share = trial.params["length"] if plan.minimize_cost else 1
    return spaces.shorten(carried, share).flags(published)


def _transfer(target: Recipe, tried: Recipe, proxy: Recipe) -> Recipe:
    """Return a recipe under what its proxy tried; rate and decay as multiples of its own.

    A shape that was not searched stays the recipe's own, where the proxy has the same family: 0.94
    every two epochs is more stairs in a longer training.
    """
    decay = tried.weight_decay / proxy.weight_decay if proxy.weight_decay else 1
    shapes = [(each.schedule, each.schedule_args) for each in (tried, proxy)]
    is_own = shapes[0] == shapes[1] and tried.schedule == target.schedule
    return target.override(
        schedule=tried.schedule,
        schedule_args=target.schedule_args if is_own else tried.schedule_args,
        warmup=tried.warmup,
        momentum=tried.momentum,
        weight_decay=target.weight_decay * decay,
        learning_rate=target.learning_rate * tried.learning_rate / proxy.learning_rate,
    )


def command(plan: StudyPlan, flags: str) -> str:
    """Return the command that trains the study's recipe with those flags."""
    arguments = run_arguments(plan.target_scale, flags)
    return f"python -m pipelines run {plan.recipe} {arguments}".rstrip()


def run_arguments(scale: str, flags: str) -> str:
    """Return what follows `python -m pipelines run RECIPE`, the scale where it is no default."""
    return flags if scale == StudyPlan.scale else f"--scale {scale} {flags}".rstrip()


def _note(plan: StudyPlan, numbers: Mapping[str, float], run_id: str, trials: Sequence[Any]) -> str:
    """Return Markdown for the study's page: what was searched, its results, how to repeat them."""
    source = get_recipe(plan.recipe, plan.target_scale).source
    counts = outcome.describe_counts(outcome.count_trials(trials), plan.start, plan.sampler)
    lines = [
        f"**{plan.recipe}** at {plan.scale} scale ({source}), {plan.space} by {plan.sampler}"
        f"{outcome.describe_budget(plan.budget)}. {counts}."
    ]
    if plan.proxy:
        lines.append(
            f"Trained on its proxy, {plan.proxy}: whether the schedule carries over is not known; "
            "peak rate and weight decay below are as many times the published ones."
        )
    found = {"gain": outcome.find_gain(plan, trials), "metrics": numbers, "start": plan.start}
    lines += outcome.sentences(found)
    families = outcome.find_families(plan, trials)
    if families:
        rows = [[*outcome.cells(row), f"`{row['settings']}`"] for row in families]
        lines.append("\n".join(markdown_table([*outcome.COLUMNS, "settings"], rows)))
    if (best := trial_results.best_trial(trials)) is not None:
        lines.append(f"To train the best: `{command(plan, override_flags(plan, best))}`")
    charts = [mlflow_ui.line_chart([key], log_y=False) for key in (OBJECTIVE, "learning_rate")]
    chart = mlflow_ui.children_chart(run_id, charts)
    return "\n\n".join([*lines, f"[The curves of its trials in one chart]({chart})"])


def _schedules(plan: StudyPlan, finished: Sequence[Any]) -> list[figures.Schedule]:
    """Return the rates of every finished trial, over its steps."""
    schedules = []
    for trial in finished:
        recipe = plan.recipe_of(trial)
        rates = lr.table(
            recipe.schedule,
            recipe.learning_rate,
            count_steps(recipe),
            recipe.warmup,
            recipe.warmup_level,
            **recipe.schedule_args,
        )
        label = outcome.label_of(plan, trial) or f"trial {trial.number} {recipe.schedule}"
        error, published = trial_results.error_pct(trial), not trial_results.is_sampled(trial)
        schedules.append(figures.Schedule(label, rates, error, published))
    return schedules


def document(study: Any, plan: StudyPlan, row: history.Row) -> dict[str, Any]:
    """Return the study as one JSON document; its results are known while it is finished."""
    trials = study.get_trials(deepcopy=False)
    finished = row.status == "FINISHED"
    best = row.tags.get("best") if finished else None
    of_trials = (TRIAL_ERROR, OBJECTIVE)  # the latter in a study of before
    metrics = {k: v for k, v in sorted(row.metrics.items()) if k not in of_trials}
    best_trial = trial_results.best_trial(trials)
    known = finished and study.user_attrs[PLAN] == plan.identity  # its ranges say what trials were

    def changes(trial: Any) -> dict[str, Any] | None:
        if not known or trial is None or trial.state.name != "COMPLETE":
            return None
        return changed_fields(plan.recipe_of(trial), plan.base)

    return {
        "study": study.study_name,
        "run_id": row.id,
        "status": row.status,
        **{key: plan.identity[key] for key in ("recipe", "scale", "space", "sampler", "pruner")},
        "proxy": plan.proxy,
        "start": plan.start,
        "budget": plan.budget,
        "best": best,
        "target_scale": plan.target_scale,
        "repeat": None if best is None else command(plan, best),
        "best_changes": changes(best_trial),
        "metrics": metrics if finished else {},
        **outcome.count_trials(trials),
        "gain": outcome.find_gain(plan, trials),
        "families": outcome.find_families(plan, trials),
        "trials": [
            {
                "number": trial.number,
                "name": f"trial {trial.number} {outcome.label_of(plan, trial)}".rstrip(),
                "state": trial.state.name,
                OBJECTIVE: trial_results.error_pct(trial)
                if trial_results.finished_trials([trial])
                else None,
                "family": outcome.family_of(plan, trial),
                "params": trial.params,
                "changes": changes(trial),
                **{key: trial.user_attrs.get(key) for key in ATTRIBUTES},
            }
            for trial in trials
            if trial.state.name != "WAITING"
        ],
        "reused": False,
    }
