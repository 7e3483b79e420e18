"""The page of a claim's run in MLflow: its note, and its charts.

The note has the verdict, the numbers, how to repeat it and a table. The charts are of metrics of
the one run: the curve of a setting, the mean over its seeds, is `curve/d 8 gamma 1 ratio`. Curves
that the claim compares, such as what is measured and its bound, share a chart.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pipelines.measurement import claim, claim_catalog
from pipelines.measurement.claim_run import json_document, settings_table
from pipelines.measurement.claim_view import ClaimView, markdown_table
from pipelines.measurement.grid import Array, Curve, Measured, mean_curve, split_by
from pipelines.measurement.plan import MeasurementPlan, shorten, stated_plan_of
from pipelines.running.seed_statistics import format_spread, metric_spreads, summarize
from pipelines.tracking import history, mlflow_ui, store

FIGURE = "figure"  # begins the names of pictures
ROWS = ("reported", "decided by", "as printed", "learned enough to judge")
MAX_NAME_CHARS = 250  # characters of a run's name, where the database limits them
MAX_CHARS = 7_900  # MLflow cuts a note at 8,000
CURVE = "curve/"  # begins the names of these metrics
MOST_SETTINGS, MOST_POINTS = 6, 100  # the UI has six kinds of dashes; of a curve
NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")
UNTAKEN = re.compile(r"[^\w.\- ]+")  # characters that a metric's name may not have


def run_name(plan: MeasurementPlan) -> str:
    """Return `small-norm-factorization cpu`; a sweep's axes come first: the UI cuts long names."""
    if plan.kind == "claim":
        return f"{plan.name} {plan.scale}"
    axes = [f"{key}={shorten(value, most=3)}" for key, value in plan.changed_settings.items()]
    return " ".join([*axes, plan.name])[:MAX_NAME_CHARS]


def write_note(
    plan: MeasurementPlan,
    run_id: str,
    judgement: Mapping[str, Any],
    values: Mapping[str, Sequence[float]],
    table: Sequence[Mapping[str, Any]],
    *,
    metrics: Collection[str],
) -> str:
    """Return the note as Markdown.

    `metrics` are the names of those of the run, some of which are drawn in its charts.
    """
    stated = json_document.stated_document(plan.name)
    view = ClaimView({**stated, **claim.tags_of(judgement), "scale": plan.scale})
    command = repeat_command(plan)
    links = chart_links(plan.name, run_id, table, metrics)
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
    judgement = plan.judge(values)
    note = write_note(plan, row.id, judgement, values, table, metrics=row.metrics)
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


def curves(plan: MeasurementPlan, measured: Sequence[Measured]) -> dict[str, Curve]:
    """Return by metric the curves of the charts of a claim.

    Of many settings some are drawn, evenly chosen from the first to the last; of a long curve some
    points.
    """
    settings = split_by(measured, history.differing_keys([m.point for m in measured]))
    return {
        name_metric(label, key): thin(*mean_curve(recorded)[:2])
        for label, cells in (settings[i] for i in spread(len(settings), MOST_SETTINGS))
        for key in dict.fromkeys(key for keys in plan.claim.charts for key in keys)
        if (recorded := [(m.steps, m.curves[key]) for m in cells if key in m.curves])
    }


def sections(charts: Sequence[Sequence[str]], metrics: Iterable[str]) -> dict[str, list[list[str]]]:
    """Return by title, `ratio vs bound`, the charts that a claim's become, by a run's metrics.

    All curves of a run have one colour in the UI. So what is compared with a bound has a chart a
    setting, in which two or three lines are told apart; one curve has a chart of all settings.
    """
    settings: dict[str, dict[str, str]] = {}
    for metric in (each for each in metrics if each.startswith(CURVE)):
        setting, _, key = metric.removeprefix(CURVE).rpartition(" ")
        settings.setdefault(setting, {})[key] = metric
    ordered = [settings[setting] for setting in sorted(settings, key=_numbers_as_such)]
    drawn: dict[str, list[list[str]]] = {}
    for keys in charts:
        each = [[of[key] for key in keys if key in of] for of in ordered]
        together = [[metric for chart in each for metric in chart]]
        drawn[" vs ".join(keys)] = [c for c in (each if len(keys) > 1 else together) if c]
    return {title: found for title, found in drawn.items() if found}


def _numbers_as_such(setting: str) -> list[tuple[bool, float, str]]:
    """Return what settings are sorted by: 8 comes before 64."""
    words = ((NUMBER.fullmatch(word), word) for word in setting.split(" "))
    return [(True, float(word), "") if is_number else (False, 0, word) for is_number, word in words]


def name_metric(setting: Sequence[str], key: str) -> str:
    """Return `curve/d 8 gamma 1 ratio`, of characters that MLflow takes."""
    words = [UNTAKEN.sub("_", part.replace("=", " ")) for part in setting]
    return f"{CURVE}{' '.join([*words, key])}"[-250:]


def spread(length: int, most: int) -> list[int]:
    """Return at most so many places of a row, evenly spread from its first to its last."""
    return [round(place) for place in np.linspace(0, length - 1, min(length, most)).tolist()]


def thin(steps: Array, values: Array, most: int = MOST_POINTS) -> Curve:
    """Return at most so many points of a curve, the first and the last among them."""
    places = spread(len(steps), most)
    return steps[places], values[places]


def chart_links(
    name: str, run_id: str, table: Sequence[Mapping[str, Any]], metrics: Collection[str]
) -> dict[str, str]:
    """Return by title the addresses, within the UI, of the charts of a run of a claim.

    `metrics` are those of the run: of a claim the curves of its settings. Of a sweep, which has
    none, the settings are runs: seeds of one setting, which `table` tells, are one line. The
    learning curves of trainings are grouped by arm.
    """
    stated = claim_catalog.load(name)
    log_x, found = bool(stated.inner), {}
    if titled := sections(stated.charts, metrics):
        drawn = {
            title: [mlflow_ui.line_chart(each, log_x=log_x) for each in charts]
            for title, charts in titled.items()
        }
        found["The curves of its settings"] = mlflow_ui.run_chart(run_id, drawn, metrics)
    elif stated.charts:
        charts = [mlflow_ui.line_chart(keys, log_x=log_x) for keys in stated.charts]
        axes = settings_table.differing_settings(table)
        groups = [("param", key) for key in axes] or [("tag", "claim")]
        found["The curves of its settings"] = mlflow_ui.children_chart(run_id, charts, groups)
    if rows := history.trainings_of(run_id) if stated.trains else []:
        found["The learning curves of its trainings"] = mlflow_ui.learning_curves(rows)
    return found
