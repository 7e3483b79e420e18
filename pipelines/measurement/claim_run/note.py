"""The note of a claim's run in MLflow: its verdict, its numbers, how to repeat it, its table."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pipelines.measurement import claim, claim_catalog, run_charts
from pipelines.measurement.claim_run import json_document, settings_table
from pipelines.measurement.claim_view import ClaimView, markdown_table
from pipelines.measurement.plan import MeasurementPlan, shorten, stated_plan_of
from pipelines.running.seed_statistics import format_spread, metric_spreads, summarize
from pipelines.tracking import history, store

FIGURE = "figure"  # begins the names of pictures
ROWS = ("reported", "decided by", "as printed", "floor reached")
MAX_NAME_CHARS = 250  # characters of a run's name, where the database limits them
MAX_CHARS = 7_900  # MLflow cuts a note at 8,000


def run_name(plan: MeasurementPlan) -> str:
    """Return `small-norm-factorization cpu`; a sweep's axes come first: the UI cuts long names."""
    if plan.kind == "claim":
        return f"{plan.name} {plan.scale}"
    axes = [f"{key}={shorten(value, most=3)}" for key, value in plan.changed_settings.items()]
    return " ".join([*axes, plan.name])[:MAX_NAME_CHARS]


def write(
    plan: MeasurementPlan,
    run_id: str,
    *,
    judgement: Mapping[str, Any],
    values: Mapping[str, Sequence[float]],
    table: Sequence[Mapping[str, Any]],
    metrics: Collection[str],
) -> str:
    """Return the note as Markdown.

    `metrics` are the names of those of the run, some of which are drawn in its charts.
    """
    stated = json_document.stated_document(plan.name)
    view = ClaimView({**stated, **judgement, "scale": plan.scale})
    command = repeat_command(plan)
    links = run_charts.links(plan.name, run_id, table, metrics)
    head, *body = settings_table.summarize(table)
    parts = [
        f"**{view.verdict}** at {plan.scale} scale: {decisive_numbers(plan, values)}",
        f"**{plan.claim.says}** ({plan.claim.source})",
        *(f"{title.capitalize()}: {text}" for title, text in view.rows(ROWS)),
        *(f"[{title}]({link})" for title, link in links.items()),
        f"![figure](get-artifact?path={FIGURE}.png&run_uuid={run_id})" * (plan.kind == "claim"),
        f"Repeat: `{command}`" * (len(command) < MAX_CHARS // 4),
        claim_catalog.card(plan.name),
        f"All settings: {settings_table.FILE}",
        "\n".join(markdown_table(head, body)),
    ]
    text = "\n\n".join(part for part in parts if part)
    return text if len(text) <= MAX_CHARS else text[:MAX_CHARS].rpartition("\n")[0]


def decisive_numbers(plan: MeasurementPlan, values: Mapping[str, Sequence[float]]) -> str:
    """Return `ratio 0.2416 ± 0.0035 (n = 5); ...`: the metrics that decide, over the seeds."""
    metrics = metric_spreads(summarize(values), plan.seeds)
    decisive = [bound.metric for bound in plan.claim.decided_by if bound.metric in metrics]
    return "; ".join(f"{key} {format_spread(metrics[key])}" for key in decisive)


def renewed_tags(
    row: history.Row, values: Mapping[str, Sequence[float]], csv: str
) -> dict[str, str]:
    """Return the note, charts and result of a claim's run, in its tags, as this code shows them.

    `values` are its numbers, one a seed, `csv` its table. Nothing of a run with other settings
    than its claim states: the note says them.
    """
    plan = stated_plan_of(row) if row.status == "FINISHED" else None
    table = settings_table.parse(csv)
    if plan is None or not table:
        return {}
    judgement = plan.claim.judge(values, plan.scale)
    note = write(plan, row.id, judgement=judgement, values=values, table=table, metrics=row.metrics)
    result = decisive_numbers(plan, values)
    return {store.NOTE: note, store.RESULT: result, **claim.tags_of(judgement)}


def repeat_command(plan: MeasurementPlan) -> str:
    """Return the command that repeats a measurement, as a person would type it."""
    seeds = f"--only-seed {plan.first_seed}" if plan.first_seed else f"--seeds {plan.seeds}"
    words = [f"--scale {plan.scale}", seeds]
    for key, value in plan.changed_settings.items():
        is_json = isinstance(value, str) and value.startswith("[")  # a list of a recipe
        each = json.loads(value) if is_json else value
        values = [str(x) for x in (each if isinstance(each, tuple | list) else (each,))]
        if plan.kind == "sweep":
            words.append(f"--grid {key}={','.join(values)}")
        else:
            words.append(_option(key.rpartition(".")[2].replace("_", "-"), values))
    verb = "sweep" if plan.kind == "sweep" else "run"
    return f"python -m pipelines {verb} {plan.name} {' '.join(words)} --force"


def _option(name: str, values: Sequence[str]) -> str:
    """Return `--widths 8 16 32`, `--augment`, `--no-augment`, `--epochs None`."""
    switches = {"true": f"--{name}", "false": f"--no-{name}", "null": f"--{name} None"}
    return switches.get(values[0].lower(), f"--{name} {' '.join(values)}")
