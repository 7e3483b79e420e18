"""What a measured claim says of itself: its page in MLflow, its table, its JSON document."""

import contextlib
import csv
import io
import itertools
import json
import math
from collections.abc import Collection, Mapping, Sequence
from statistics import mean
from typing import Any

import numpy as np

from pipelines.measurement import claim, claim_catalog, run_charts
from pipelines.measurement.claim import SEED_PREFIX
from pipelines.measurement.grid import ASSUMPTION, Measured
from pipelines.measurement.plan import MeasurementPlan, shorten, stated_plan_of
from pipelines.running.seed_statistics import format_spread, metric_spreads, standard_deviation
from pipelines.running.seed_statistics import summarize as over_seeds
from pipelines.tracking import history, mlflow_ui, store

MEASURED_BY = "measured_by"  # tag of a claim: digests of the codes that measured its cells
CSV = "settings.csv"  # one row a cell
FIGURE = "figure"  # begins the names of pictures
WORST_PREFIX = "worst_"  # begins the columns of the bounded metrics
MAX_NAME_CHARS = 250  # characters of a run's name, where the database limits them
MAX_PAGE_CHARS = 7_900  # characters of a run's page; MLflow cuts at 8,000


def run_name(plan: MeasurementPlan) -> str:
    """Return `small-norm-factorization cpu`; a sweep's axes come first: the UI cuts long names."""
    if plan.kind == "claim":
        return f"{plan.name} {plan.scale}"
    axes = [f"{key}={shorten(value, most=3)}" for key, value in plan.changed_settings.items()]
    return " ".join([*axes, plan.name])[:MAX_NAME_CHARS]


def run_page(
    plan: MeasurementPlan,
    run_id: str,
    *,
    judgement: Mapping[str, str],
    values: Mapping[str, Sequence[float]],
    cells: Sequence[Mapping[str, Any]],
    metrics: Collection[str],
) -> str:
    """Return the run's page as Markdown: verdict, numbers, how to repeat it, its table.

    `metrics` are those of the run, some of which are drawn in its charts.
    """
    command, charts = repeat_command(plan), chart_links(plan.name, run_id, cells, metrics)
    decided = "; ".join(map(str, plan.claim.decided_by))
    reported = "; ".join(f"`{key}` {value:g}" for key, value in plan.claim.reported.items())
    figure = f"![figure](get-artifact?path={FIGURE}.png&run_uuid={run_id})"
    before = [
        f"**{judgement['verdict']}** at {plan.scale} scale: {decisive_numbers(plan, values)}",
        f"**{plan.claim.says}** ({plan.claim.source})",
        f"Reported: {reported}" if reported else "",
        f"Decided by {decided}.",
        f"Quoted: {judgement['as_printed']}." if judgement["as_printed"] else "",
        f"Floor of learning reached: {judgement['floor']}." if judgement["floor"] else "",
        *(f"[{title}]({link})" for title, link in charts.items()),
        figure if plan.kind == "claim" else "",
        f"Repeat: `{command}`" if len(command) < MAX_PAGE_CHARS // 4 else f"Settings: {CSV}.",
    ]
    after = [f"The other settings are in {CSV}.", claim_catalog.card(plan.name)]
    before = [paragraph for paragraph in before if paragraph]
    head, *body = summary_table(cells)
    table = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body)]
    room = MAX_PAGE_CHARS - sum(len(paragraph) + 2 for paragraph in (*before, *after))
    used = itertools.accumulate(len(line) + 1 for line in table)
    fitting = sum(1 for chars in used if chars <= room)
    if fitting == len(table):
        del after[0]
    return "\n\n".join([*before, "\n".join(table[:fitting]), *after])


def decisive_numbers(plan: MeasurementPlan, values: Mapping[str, Sequence[float]]) -> str:
    """Return `ratio 0.2416 ± 0.0035 (n = 5); ...`: the metrics that decide, over the seeds."""
    metrics = metric_spreads(over_seeds(values), plan.seeds)
    decisive = [bound.metric for bound in plan.claim.decided_by if bound.metric in metrics]
    return "; ".join(f"{key} {format_spread(metrics[key])}" for key in decisive)


def chart_links(
    name: str, run_id: str, cells: Sequence[Mapping[str, Any]], metrics: Collection[str]
) -> dict[str, str]:
    """Return by title the addresses, within the UI, of the charts of a run of a claim.

    `metrics` are those of the run: of a claim the curves of its settings. Of a sweep, which has
    none, the settings are runs: seeds of one setting, which `cells` tell, are one line. The
    learning curves of trainings are grouped by arm.
    """
    stated = claim_catalog.load(name)
    log_x, links = bool(stated.inner), {}
    if sections := run_charts.sections(stated.charts, metrics):
        drawn = {
            title: [mlflow_ui.line_chart(each, log_x=log_x) for each in charts]
            for title, charts in sections.items()
        }
        links["The curves of its settings"] = mlflow_ui.run_chart(run_id, drawn, metrics)
    elif stated.charts:
        charts = [mlflow_ui.line_chart(keys, log_x=log_x) for keys in stated.charts]
        groups = [("param", key) for key in _axes(cells)] or [("tag", "claim")]
        links["The curves of its settings"] = mlflow_ui.children_chart(run_id, charts, groups)
    if rows := trainings(run_id) if stated.trains else []:
        curves = mlflow_ui.learning_curves([row.id for row in rows], _group(rows))
        links["The learning curves of its trainings"] = curves
    return links


def trainings(run_id: str) -> list[history.Row]:
    """Return the trainings below a claim's run, and those of earlier runs that it names."""
    rows = history.rows_with_evidence(None, kind="training", **{store.PARENT: run_id})
    run = history.find(run_id)
    reused = store.reused_ids(run.tags) if run else []
    return [*rows, *(row for each in reused if (row := history.find(each)))]


def _group(rows: Sequence[history.Row]) -> str | None:
    """Return the tag by which trainings that differ in their seed alone are one line.

    None where no tag tells their other settings apart.
    """
    settings = [frozenset(history.without_seed(row.params).items()) for row in rows]
    for tag in (store.ARM, "recipe"):
        values = [row.tags.get(tag) for row in rows]
        if len(set(values)) == len(set(settings)) == len(set(zip(values, settings, strict=True))):
            return None if None in values else tag
    return None


def arm_name(tags: Mapping[str, str], arm_names: Mapping[str, str]) -> str:
    """Return what a claim calls a training, else the name under which it was trained, if any.

    A training that two claims share bears the name of the first.
    """
    return arm_names.get(tags.get("fingerprint", "")) or tags.get(store.ARM, "")


def name_arms(plan: MeasurementPlan, run_id: str) -> None:
    """Tag the trainings of a run that have no name yet with what the claim calls them."""
    arms = plan.arm_names
    for row in trainings(run_id) if plan.claim.trains and len({*arms.values()}) > 1 else ():
        if store.ARM not in row.tags and row.tags.get("fingerprint") in arms:
            store.client().set_tag(row.id, store.ARM, arms[row.tags["fingerprint"]])


def renewed_tags(
    row: history.Row, values: Mapping[str, Sequence[float]], table: str
) -> dict[str, str]:
    """Return the page, charts and result of a claim's run, in its tags, as this code shows them.

    `values` are its numbers, one a seed, `table` its cells as CSV. Nothing of a run with other
    settings than its claim states: the page says them.
    """
    plan, cells = stated_plan_of(row) if row.status == "FINISHED" else None, parse_table(table)
    if plan is None or not cells:
        return {}
    judgement = plan.claim.judge(values, plan.scale)
    page = run_page(
        plan, row.id, judgement=judgement, values=values, cells=cells, metrics=row.metrics
    )
    result = decisive_numbers(plan, values)
    return {store.NOTE: page, store.RESULT: result, **claim.tags_of(judgement)}


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


def table_rows(plan: MeasurementPlan, measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """Return a row a cell: settings, seed, share of steps in the premise, worst and last values."""
    inner, bounds = plan.claim.inner, plan.claim.curve_bounds(measured)
    return [
        {
            **{key: value for key, value in m.cell.params.items() if key != inner},
            ASSUMPTION: float(m.holds.mean()),
            **{  # NaN where no value is judged
                f"{WORST_PREFIX}{b.metric}": b.worst(judged) if len(judged) else math.nan
                for b in bounds
                for judged in [m.curves[b.metric][m.holds]]
            },
            **{f"last_{key}": float(values[-1]) for key, values in m.curves.items()},
            "points": len(m.steps),
        }
        for m in measured
    ]


def format_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows of a table as CSV."""
    text = io.StringIO()
    columns = dict.fromkeys(key for row in rows for key in row)  # some cells lack some
    writer = csv.DictWriter(text, columns, restval="nan")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def summary_table(cells: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return a table, head first: one row a setting, of every bounded metric its worst, over seeds.

    The columns are the settings in which the rows differ, the share of steps where the premise
    holds, and the metrics as mean ± sd.
    """
    axes = _axes(cells)
    worst = [key for key in cells[0] if key.startswith(WORST_PREFIX)]
    points: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for cell in cells:
        points.setdefault(tuple(str(cell[key]) for key in axes), []).append(cell)
    table = [[*axes, "premise", *(key.removeprefix(WORST_PREFIX) for key in worst)]]
    for point, cells_at_point in points.items():
        holds = f"{mean(float(cell[ASSUMPTION]) for cell in cells_at_point):.0%}"
        table.append(
            [
                *point,
                holds,
                *(_format_spread([float(c[key]) for c in cells_at_point]) for key in worst),
            ]
        )
    return table


def _format_spread(values: Sequence[float]) -> str:
    values = [value for value in values if not math.isnan(value)]
    if not values:
        return "not judged"
    sd = f" ± {standard_deviation(values):.2g}" if len(values) > 1 else ""
    return f"{mean(values):.4g}{sd}"


def _axes(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the settings in which the rows of a table differ, other than the seed."""
    columns = list(cells[0]) if cells else ["seed"]
    settings = columns[: columns.index("seed")]
    return history.differing_keys([{key: cell[key] for key in settings} for cell in cells])


def claim_document(row: history.Row) -> dict[str, Any]:
    """Return a measured claim as users script against it; all of it read back from MLflow."""
    name, n = row.tags["claim"], int(row.tags["seeds"])
    sweep = {"kind": "sweep", "settings": read_table(row.id)} if row.tags["kind"] == "sweep" else {}
    return {
        "claim": name,
        "source": row.tags["source"],
        "scale": row.tags["scale"],
        "verdict": row.tags["verdict"],
        "as_printed": row.tags["as_printed"],
        "floor": row.tags["floor"],
        "seeds": n,
        "metrics": metric_spreads({k: v for k, v in row.metrics.items() if k != "wall_s"}, n),
        "reported": dict(claim_catalog.load(name).reported),
        "run_id": row.id,
        "wall_s": row.metrics["wall_s"],
        "reused": False,
        **({"other_code": True} if MEASURED_BY in row.tags else {}),
        **sweep,
    }


def rejudged_document(row: history.Row, altered: bool = False) -> dict[str, Any]:
    """Return the document of a measured claim with its verdict by the rules of today.

    `altered`: its settings are not those of its scale.
    """
    return claim_document(row) | judgements([row], altered)[row.id]


def judgements(rows: Sequence[history.Row], altered: bool = False) -> dict[str, dict[str, Any]]:
    """Return by id what the rules of today say of runs: verdict, as printed, floor, quotations."""
    histories = history.histories([row.id for row in rows], SEED_PREFIX)
    return {
        row.id: claim_catalog.load(row.tags["claim"]).judge(
            seed_values(histories[row.id]), row.tags["scale"], altered
        )
        for row in rows
    }


def seed_values(histories: Mapping[str, Mapping[int, float]]) -> dict[str, list[float]]:
    """Return by metric the numbers of the seeds that a claim's run recorded, in their order."""
    return {
        key.removeprefix(SEED_PREFIX): [by_seed[seed] for seed in sorted(by_seed)]
        for key, by_seed in histories.items()
        if key.startswith(SEED_PREFIX)
    }


def has_recorded(
    histories: Mapping[str, Mapping[int, float]], values: Mapping[str, Sequence[float]]
) -> bool:
    """Return whether a claim's run with these histories holds these numbers, seed by seed."""
    recorded = seed_values(histories)
    return all(are_same(recorded.get(metric, []), numbers) for metric, numbers in values.items())


def are_same(first: Sequence[float], second: Sequence[float]) -> bool:
    """Return whether two lists hold the same numbers, but for the last bits of a fit.

    Those differ from processor to processor; 1 less a slope can be 2e-16 or 2e-14.
    """
    same_length = len(first) == len(second)
    return same_length and np.allclose(first, second, rtol=1e-9, atol=1e-14, equal_nan=True)


def read_table(run_id: str) -> list[dict[str, Any]]:
    """Return the rows of the table of a claim or a sweep, with numbers as such."""
    return parse_table((store.artifact(run_id, CSV) or b"").decode())


def parse_table(text: str) -> list[dict[str, Any]]:
    """Return the rows of a table as CSV, with numbers as such."""
    rows = csv.DictReader(io.StringIO(text, newline=""))
    return [{key: _parse_number(value) for key, value in row.items()} for row in rows]


def _parse_number(text: str) -> str | float:
    """Return a number, where the text is one."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text
