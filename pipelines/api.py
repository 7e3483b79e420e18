"""The project from Python: run a claim or a recipe, look at the result, read what was recorded.

It does what the command line does, and records the same runs in the same place:

    from pipelines import api

    result = api.run("gradient-formula", seeds=3)
    result.verdict  # "holds"
    result.to_frame()  # a pandas DataFrame, one row a setting and seed
    result.figure()  # a matplotlib figure; in a notebook after %matplotlib inline

A mistake raises UserError, whose sentence says what is wrong and what to do.
"""

import contextlib
import dataclasses
import html
import io
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipelines.data.own import packing
from pipelines.errors import LISTED_BY, UserError, check_names, unknown
from pipelines.measurement import cells, claim_catalog, grid
from pipelines.measurement import sweep as measuring
from pipelines.measurement.claim_run import json_document, settings_table
from pipelines.measurement.claim_view import ROWS, ClaimView
from pipelines.measurement.plan import MeasurementPlan
from pipelines.recipes import catalog, checks
from pipelines.recipes.recipe import Recipe
from pipelines.results import comparison, frames
from pipelines.results import scoreboard as board
from pipelines.results.evidence import bundles
from pipelines.running import seeds
from pipelines.running.existing import PER_STEP, select_final
from pipelines.running.run_options import RunOptions
from pipelines.running.seed_statistics import format_spread
from pipelines.running.seeds import repeat, spreads
from pipelines.tracking import history, recovery, store

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

ARGUMENTS = ("model_args", "data_args", "schedule_args")  # arguments may be named without these
HEADLINE = ("test_error_pct", "val_error_pct", "test_loss", "val_loss")  # the first that is there


def run(
    name: str, scale: str = "cpu", seeds: int | None = None, force: bool = False, **settings: Any
) -> "Result":
    """Run a claim or a recipe, and return its result; what has finished before is found again.

    `scale` is smoke, cpu, hours or paper. `seeds` repeats with seeds 0, 1, ...; by default a claim
    takes as many as it states, a recipe its one seed. `force` repeats what has finished. The other
    arguments replace settings of the claim or the recipe, by the names that `python -m pipelines
    run NAME --help` lists, with `_` for `-`; where a claim takes several values, give a list.
    `data`, `model` and the claim, by its file, may be your own; `size` scales such pictures.

        api.run("small-norm-factorization", d=[2, 8], seeds=3)
        api.run("allconv-digits", learning_rate=0.1, blocks_per_stage=2, steps=100)
        api.run("allconv-digits", data="~/flowers", size=32, model="my_net.py")
    """
    if name.endswith(".py"):
        name = claim_catalog.add(name)
    stated = stated_settings(name, scale)
    if hasattr(stated, "data") and {"data", "size"} & settings.keys():
        size = settings.pop("size", None)
        settings["data"] = packing.name_data(str(settings.get("data", "")), size)
    if "model" in settings:
        settings["model"] = checks.name_model(str(settings["model"]))
    chosen = _change(name, stated, settings)
    recovery.deliver_journals()
    options = RunOptions(force=force)
    if not claim_catalog.is_claim(name):
        document = repeat(chosen, seeds, options, f"{name} {scale}") | {"scale": scale}
        return Result(document, chosen)
    bundles.import_if_own([name])
    document = measuring.check(name, scale, chosen, seeds, run_options=options)
    return Result(document, chosen)


def stated_settings(name: str, scale: str = "cpu") -> Any:
    """Return what a claim, or else a recipe, states at a scale: a frozen dataclass.

    Raise UserError for an unknown name.
    """
    if claim_catalog.is_claim(name):
        return claim_catalog.get_settings(name, scale)
    if name in catalog.RECIPES:
        return catalog.get_recipe(name, scale)
    raise unknown("A claim or recipe", name, [*claim_catalog.names(), *catalog.RECIPES], LISTED_BY)


def sweep(
    name: str, scale: str = "cpu", seeds: int | None = None, force: bool = False, **axes: Any
) -> "Result":
    """Measure a claim over a grid of its settings, and return the result.

    An axis is a list of values, or a range as the command line has it: "8:256:2x".

        api.sweep("small-norm-factorization", d=[4, 16], l="8:256:2x", seeds=2)
    """
    specs = [f"{key}={','.join(map(str, _values(values)))}" for key, values in axes.items()]
    settings, varied = grid.apply_specs(claim_catalog.get_settings(name, scale), specs)
    options = RunOptions(force=force)
    document = measuring.sweep(name, scale, specs, seeds, run_options=options)
    return Result(document, settings, varied)


def result(name: str) -> "Result":
    """Return a recorded result of a claim or a recipe, without measuring anything.

    Of a claim the one at the largest scale, with the settings that it states: yours if there is
    one, else the project's. Of a recipe the latest.

        api.result("two-phases").figure()
    """
    if not claim_catalog.is_claim(name):
        stated_settings(name, "cpu")
        named = [r for r in history.rows(kind="training", recipe=name) if store.RUN_AS in r.tags]
        rows = history.rows(kind="seeds", recipe=name) + named  # no arm of a claim
        if not rows:
            raise _unmeasured_error(name)
        row = max(rows, key=lambda row: row.end_ms or 0)  # a run over seeds ends after them
        metrics = {key: each for key, each in spreads(row).items() if key not in PER_STEP}
        seeds = int(row.params.get("seeds", 1))
        return Result({"recipe": name, "seeds": seeds, "metrics": metrics, "run_id": row.id})
    bundles.import_if_own([name])
    chosen = board.own_results(claim=name).get(name) or board.imported_result(name)
    if chosen is None:
        raise _unmeasured_error(name)
    settings = claim_catalog.get_settings(name, chosen.tags["scale"])
    return Result(json_document.rejudged_document(chosen), settings)


def runs(kind: str | None = None, **tags: str) -> "pd.DataFrame":
    """Return recorded runs, newest first, one a row; whatever their state, unless `status` says.

    `kind` is claim, sweep, setting, training, seeds, study, trial or reference; other tags choose,
    too. Columns are named as by MLflow: `params.learning_rate`, `metrics.test_error_pct`,
    `tags.claim`.

        api.runs("training", recipe="allconv-digits")
    """
    for key, choices in (("claim", claim_catalog.names()), ("recipe", [*catalog.RECIPES])):
        if tags.get(key, choices[0]) not in choices:
            raise unknown(f"A {key}", tags[key], choices, LISTED_BY)
    wanted = tags | ({"kind": kind} if kind else {})
    return frames.table_of(history.rows_with_evidence(wanted.pop("status", None), **wanted))


def compare(*runs: "str | Result") -> "Comparison":
    """Compare recorded runs, named by results, ids or names, with the first of them.

    a = api.run("allconv-digits", seeds=3)
    b = api.run("allconv-digits", seeds=3, schedule="cosine")
    api.compare(a, b).figure()
    """
    names = [each.run_id if isinstance(each, Result) else each for each in runs]
    return Comparison(comparison.compare(names))


def curves(
    runs: "pd.DataFrame | Sequence[str]", metrics: str | Sequence[str] | None = None
) -> "pd.DataFrame":
    """Return curves of runs, one point a row: run_id, name, seed, settings, metric, step, value.

    `runs` are those of `runs()`, or ids. The settings are the parameters in which the runs differ.

        api.curves(api.runs("training", recipe="allconv-digits"), "val_error_pct")
    """
    import pandas as pd

    is_table = isinstance(runs, pd.DataFrame)
    return frames.curves_of(runs if is_table else frames.table_of(map(history.row, runs)), metrics)


def scoreboard() -> "pd.DataFrame":
    """Return the scoreboard, a claim a row: what it says, its verdict, what was measured.

        api.scoreboard().verdict.value_counts()

    What the project has measured is read from its bundles, in some seconds.
    """
    import pandas as pd

    views = [entry.view for entry in board.entries()]
    cells = [{key: view.text(key) for key in ROWS} for view in views]
    return pd.DataFrame(cells).set_index("claim")


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a claim, a sweep or a recipe; printed, it says so in a few lines."""

    document: Mapping[str, Any]
    """The whole answer, as `run NAME --json` prints it."""
    settings: Any = None
    varied: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the name of the claim or the recipe."""
        return str(self.document.get("claim") or self.document["recipe"])

    @property
    def verdict(self) -> str | None:
        """Return a word of docs/how-to/verdicts.md, such as `holds`; None of a recipe."""
        return self.document.get("verdict")

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """Return by metric `mean`, `sd`, `n` and the ends of the one-sided 95 % intervals."""
        return dict(self.document["metrics"])

    @property
    def run_id(self) -> str:
        """Return the id of its run in MLflow."""
        return str(self.document["run_id"])

    def to_frame(self) -> "pd.DataFrame":
        """Return its table: of a claim a row a setting and seed, of a recipe a row a seed.

        The means over seeds and other settings, for every size `d`:

            result.to_frame().groupby("d").worst_ratio.mean()
        """
        import pandas as pd

        if "claim" not in self.document:
            rows = seeds.trainings(history.row(self.run_id))
            ids = [{"seed": int(row.params["seed"]), "run_id": row.id} for row in rows]
            final = [select_final(row.metrics) for row in rows]
            return pd.DataFrame([a | b for a, b in zip(ids, final, strict=True)])
        return pd.DataFrame(settings_table.read(self.run_id))

    def runs(self) -> "pd.DataFrame":
        """Return its runs, as `api.runs` does: trainings, settings of a sweep, else its own."""
        if "claim" not in self.document:
            return frames.table_of(seeds.trainings(history.row(self.run_id)))
        below = history.rows_with_evidence(None, **{store.PARENT: self.run_id})[::-1]
        trainings = history.trainings_of(self.run_id)[::-1]
        return frames.table_of(trainings or below or [history.row(self.run_id)])

    def curves(self, metrics: str | Sequence[str] | None = None) -> "pd.DataFrame":
        """Return the curves behind it, one point a row: name, seed, settings, metric, step, value.

        Of a claim about arrays they are those of its settings, else those of its trainings. A
        column a seed, for a plot:

            result.curves("val_error_pct").pivot_table(index="step", columns="seed", values="value")
        """
        if "claim" not in self.document or claim_catalog.load(self.name).trains:
            return curves(self.runs(), metrics)
        measured = cells.read_plan(self._plan, self.run_id) or []
        return frames.curves_of_cells(measured, metrics)

    def figure(self, **point: Any) -> "Figure":
        """Return the figure of a claim, or the learning curves of a recipe.

        Of a claim, at those values of settings: `result.figure(d=8)`. Of a sweep over settings that
        share no figure, at the first of their values unless they are named.
        """
        if "claim" not in self.document:
            if point:
                raise UserError(
                    f"A recipe has one figure, of its seeds. Received: {point}. Leave it out."
                )
            return frames.draw_curves(self.curves())
        plan = self._plan
        check_names(f"A setting of {self.name}", point, plan.axes)
        measured = cells.read_plan(plan, self.run_id) or []
        chosen = grid.split_by(grid.select(measured, **point), plan.varied)
        if not chosen:
            raise UserError(
                f"A figure needs settings that were measured. Received: none of {self.name} at "
                f"{point or 'all'}. Choose values of its table: .to_frame()"
            )
        picture: Figure = plan.claim.draw(plan, chosen[0][1], self.run_id)
        return picture

    @property
    def _plan(self) -> MeasurementPlan:
        """Return the plan of a claim or a sweep."""
        return MeasurementPlan(
            name=self.name,
            scale=self.document["scale"],
            settings=self.settings,
            seeds=self.document["seeds"],
            kind=self.document.get("kind", "claim"),
            varied=dict(self.varied),
        )

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        head, *rest = map(html.escape, self._lines())
        return "<br>".join([f"<b>{head}</b>", *rest])

    def _lines(self) -> list[str]:
        """Return the headline, the statement, and what was measured."""
        count = self.document["seeds"]
        seeds = f"{count} seed{'' if count == 1 else 's'}"
        if "claim" not in self.document:
            spreads = [
                f"{k} {format_spread(self.metrics[k])}" for k in HEADLINE if k in self.metrics
            ]
            return [f"{self.name}: {'; '.join(spreads)}", f"{seeds}, run {self.run_id}"]
        view = ClaimView(self.document)
        return [
            f"{self.name}: {self.verdict} at {self.document['scale']} scale, {seeds}",
            f"{view.text('says')} ({view.text('source')})",
            view.text("measured"),
            *filter(None, [view.text("as printed")]),
            f"run {self.run_id}",
        ]


@dataclass(frozen=True, repr=False)
class Comparison:
    """Runs beside each other; printed, it says what `python -m pipelines compare` says."""

    document: Mapping[str, Any]
    """The whole answer, as `compare --json` prints it."""

    def to_frame(self) -> "pd.DataFrame":
        """Return a row a metric and run: mean, sd, n, and the difference from the first run.

        `low` and `high` are the ends of its 95 % Welch interval, NaN where a run has one seed.
        """
        import pandas as pd

        keys = ("values", "sd", "n", "difference", "interval")
        rows = [
            [metric, run["name"], *rest, *(interval or (None, None))]
            for metric, columns in self.document["metrics"].items()
            for run, *rest, interval in zip(
                self.document["runs"], *(columns[key] for key in keys), strict=True
            )
        ]
        columns = ["metric", "run", "mean", "sd", "n", "difference", "low", "high"]
        return pd.DataFrame(rows, columns=columns)

    def figure(self) -> "Figure":
        """Return the learning curves: of each run the mean over its seeds, in a band of them."""
        return comparison.draw([history.row(run["run_id"]) for run in self.document["runs"]])

    def __repr__(self) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            comparison.print_comparison(self.document)
        return said.getvalue()


def _change(name: str, settings: Any, changes: Mapping[str, Any]) -> Any:
    """Return the settings with others in their place; UserError for what they do not have."""
    if isinstance(settings, Recipe):
        return _change_recipe(name, settings, changes)
    fields = {each.name: getattr(settings, each.name) for each in dataclasses.fields(settings)}
    check_names(f"A setting of {name}", changes, fields)
    for key, value in changes.items():
        _check_like(key, value, fields[key])
    several = {key for key, value in fields.items() if isinstance(value, tuple)}
    given = {k: _values(v) if k in several else v for k, v in changes.items()}
    return dataclasses.replace(settings, **given)


def _check_like(key: str, given: Any, stated: Any) -> None:
    """Raise UserError for a value, or one of several, that is not of the kind of what is stated."""
    example = next(iter(_values(stated)), None)
    if isinstance(example, bool) or not isinstance(example, int | float):
        is_like = all(example is None or isinstance(v, type(example)) for v in _values(given))
    else:
        kind = numbers.Integral if isinstance(example, int) else numbers.Real
        is_like = all(isinstance(v, kind) and not isinstance(v, bool) for v in _values(given))
    if not is_like:
        raise UserError(
            f"{key} must be as {stated!r} is. Received: {given!r}. Give such a value, or a list of "
            "them where it has several."
        )


def _change_recipe(name: str, recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    fields = {each.name for each in dataclasses.fields(recipe)}
    for key in changes.keys() & fields:
        if not isinstance(stated := getattr(recipe, key), Mapping):
            _check_like(key, changes[key], stated)
    changed = recipe.override(**{key: changes[key] for key in changes if key in fields})
    for key in changes.keys() - fields:
        places = [place for place in ARGUMENTS if key in getattr(changed, place)]
        if not places:
            arguments = [key for place in ARGUMENTS for key in getattr(changed, place)]
            raise unknown(f"A setting of {name}", key, [*fields, *arguments])
        changed = changed.override(**{places[0]: {key: changes[key]}})
    if claim_catalog.is_claim(name) and changed.seed:
        raise UserError(
            f"A claim takes seeds 0, 1, ... Received: seed={changed.seed} for {name}. Set seeds to "
            "their number."
        )
    checks.check(changed)
    return changed


def _values(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)


def _unmeasured_error(name: str) -> UserError:
    return UserError(
        f"A result must have been recorded. Received: {name}, which was not measured here or by "
        f'the project. Measure it: api.run("{name}")'
    )
