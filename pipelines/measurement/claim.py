"""Claims: a sentence of a source, how it is measured at each scale, the bounds that decide it.

Each module of pipelines/claims holds one, named after its file, as `CLAIM`; nothing else has to be
edited to add one. How a claim is measured over its grid and recorded is in sweep.py.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from pipelines.measurement.grid import Cells, Curves, Measured, join
from pipelines.measurement.quotation import ACCUSED, NOT_TESTED, SEPARATOR, Grade, Quotation
from pipelines.measurement.verdict import (
    BROKEN,
    EXPERIMENT,
    HOLDS,
    INCONCLUSIVE,
    NOT_DECIDABLE,
    NOT_JUDGED,
    NOT_RUN,
    OUTCOMES,
    THEOREM,
    Bound,
    LearningLimit,
    Look,
    Words,
)
from pipelines.recipes.cost import Cost
from pipelines.recipes.settings import SCALES
from pipelines.running.seed_statistics import CONFIDENCE

TAGS = ("verdict", "as_printed", "floor")  # a run's tags; floor: have networks learned enough
MOST_S = 6 * 3_600  # of 2 cores: what costs more is not decidable here
SEED_PREFIX = "seed/"  # begins the metrics of a claim's run whose steps are its seeds


def means(*metrics: str) -> Callable[[Sequence[Measured]], dict[str, float]]:
    """Return `extra_metrics` of a claim: the means of these curves over all cells and steps."""
    return reductions(**dict.fromkeys(metrics, np.mean))


def reductions(**reduce: Callable[..., Any]) -> Callable[[Sequence[Measured]], dict[str, float]]:
    """Return `extra_metrics` of a claim: these curves, each reduced to a number."""
    return lambda measured: {key: float(each(join(measured, key))) for key, each in reduce.items()}


NO_NUMBERS = reductions()  # beside those that decide


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of a source and how it is decided; a `Theorem` or an `Experiment`.

    `scales` holds a frozen dataclass of settings for each scale; its fields that are tuples are the
    axes of a grid. A bound is on a curve, of which the worst point of every seed counts, or on one
    of the numbers that `extra_metrics` makes from all that was measured with a seed.
    """

    trains: ClassVar[bool] = False
    """Whether its cells are measured one at a time, by training networks in this process."""

    source: str
    says: str
    formula: str = ""
    """The statement in LaTeX, for its page in the documentation."""
    family: str
    """The experiment in MLflow that its runs stand in."""
    scales: Mapping[str, Any]
    decided_by: tuple[Bound, ...]
    figure: Callable[..., Any]
    """A function that draws the cells; for an `Experiment`, with the trainings below each."""
    extra_metrics: Callable[[Sequence[Measured]], dict[str, float]] = NO_NUMBERS
    reported: Mapping[str, float] = field(default_factory=dict)
    printed: tuple[Quotation, ...] = ()
    """The sentences of the source that it tests, as they stand in the copies that were read."""
    words: Words = THEOREM
    """Names of its verdicts."""
    price: str = ""
    """The work of a decision that is out of reach here, if it is not that of `costs`: `30 seeds of
    10 minutes of an H200`. Until a run decides it, the claim is `not decidable here`."""
    shown: tuple[str, ...] = ()
    """Metrics that decide nothing and stand on the scoreboard beside those that do."""
    limits: tuple[LearningLimit, ...] = ()
    """Errors that trained networks must not exceed, all of them, to be judged."""
    unjudged_scales: tuple[str, ...] = ()
    """Scales with other data than the source's, whose numbers are shown and not judged."""
    costs: Mapping[str, Cost] = field(default_factory=dict)
    """The time of all its seeds, by scale."""
    card: str = ""
    """The claim in words, where those at the beginning of its module are of several claims."""
    seeds: int = 5
    """Seeds after which it is judged; with `looks`, after which it is judged first."""
    looks: tuple[Look, ...] = ()
    """Judgements of trained networks, each after more seeds, such as TWO_LOOKS; empty: one."""
    charts: tuple[tuple[str, ...], ...] = ()
    """Curves that share a chart in the UI, one tuple a chart: what is measured and its bounds."""
    recipes: Callable[[Any, int], Mapping[str, Any]] | None = None
    """The trainings of a setting and a seed: refused, if need be, before a run is opened."""
    reads: str | None = None
    """The setting that names a data set which is read without a recipe."""
    require: Callable[[str], Any] = str
    """A function that raises UserError where that data set is not there."""
    unstable: Mapping[str, float] = field(default_factory=dict)
    """Curves that rounding changes, such as where a search ends: by how much another processor may
    find them elsewhere, on the same side of their bounds."""
    inner: str | None = None
    """The axis that is not cut into cells: it becomes the step of every cell's curves."""

    def __post_init__(self) -> None:
        if self.looks and self.looks[0].seeds != self.seeds:
            raise ValueError(
                f"A claim is judged first after its seeds. Received: seeds={self.seeds}, "
                f"looks={self.looks}. Give both, as TWO_LOOKS does."
            )

    def draw(self, plan: Any, measured: Sequence[Measured], run_id: str) -> Any:
        """Return the figure of cells of a plan, which a run holds."""
        return self.figure(measured)

    def published_recipes(self, arms: Mapping[str, Any]) -> list[Any]:
        """Return the published recipes from which it may take what its settings do not say."""
        return []

    def check_recipes(self, recipes: Iterable[Any]) -> None:
        """Raise UserError for what no machine can train."""

    def check_trainable(self, recipes: Iterable[Any], run_options: Any) -> None:
        """Raise UserError for what this machine cannot train."""

    def link_trainings(self, measured: Iterable[Measured], run: Any) -> None:
        """Let a run name the trainings of cells that other runs have measured."""

    def training_spans(self, measured: Iterable[Measured], run_id: str) -> list[tuple[int, int]]:
        """Return from and until when the trainings of cells ran, milliseconds since 1970."""
        return []

    def measure_cell(self, plan: Any, cell: Any, run: Any) -> Measured:
        """Return a cell of the plan, measured in this process, if the claim `trains`."""
        raise NotImplementedError

    def metrics(self, measured: Sequence[Measured]) -> dict[str, float]:
        """Return numbers of one seed: the worst of every bounded curve where the premise holds."""
        worst = {}
        for bound in self.curve_bounds(measured):
            values = np.concatenate([m.curves[bound.metric][m.holds] for m in measured])
            if len(values):
                worst[bound.metric] = bound.worst(values)
        return worst | self.extra_metrics(measured)

    def curve_bounds(self, measured: Sequence[Measured]) -> list[Bound]:
        """Return the bounds that are on curves."""
        return [bound for bound in self.decided_by if bound.metric in measured[0].curves]

    def judge(
        self, values: Mapping[str, Sequence[float]], scale: str, altered: bool = False
    ) -> dict[str, Any]:
        """Return the `verdict`, `floor`, `look`, and as JSON the `quotations` and the `bounds`.

        `as_printed` has the grades of the quotations in one line. A bound has an outcome where it
        is judged, and an interval where its mean over seeds decides. `values` holds one number a
        seed of each metric. `altered`: other settings than those of the scale.
        """
        grades = self.grades(values, scale, altered)
        is_accused = any(grade.grade in ACCUSED for _, grade in grades)
        verdict = self._name(self.outcome(values, scale, altered), is_accused)
        look = self.reached_looks(values)[-1]
        bounds = _at(look, self.decided_by)
        judged = [] if verdict == NOT_JUDGED else _at(look, self._judged_bounds(scale, altered))
        return {
            "verdict": verdict,
            "as_printed": SEPARATOR.join(f"{each.place}: {grade}" for each, grade in grades),
            "floor": "; ".join(limit.state(values) for limit in self.limits),
            "look": self.describe_look(values),
            "quotations": [each.document(grade) for each, grade in grades],
            "bounds": [b.document(values.get(b.metric, ()), b in judged) for b in bounds],
        }

    def verdict(
        self, values: Mapping[str, Sequence[float]], scale: str, altered: bool = False
    ) -> str:
        """Return one of `verdict.VERDICTS`: the claim's word for the weakest of its bounds."""
        return str(self.judge(values, scale, altered)["verdict"])

    def _name(self, outcome: str, is_accused: bool) -> str:
        """Return the claim's word for an outcome; `is_accused`: a quotation does not hold.

        An experiment is not denied where its source leaves open a setting that it depends on.
        """
        if outcome == HOLDS:
            return self.words.corrected if is_accused else self.words.holds
        is_open = self.words == EXPERIMENT and any(each.unstated for each in self.printed)
        if outcome == BROKEN and not is_open:
            return self.words.broken
        if outcome in (BROKEN, INCONCLUSIVE):
            return NOT_DECIDABLE if self.price else INCONCLUSIVE
        return outcome

    @property
    def deciding_scales(self) -> list[str]:
        """Return the scales at which it may be decided: of trained networks the larger ones."""
        scales = [s for s in SCALES if s in self.costs and s not in self.unjudged_scales]
        larger = [scale for scale in scales if scale != "cpu"]
        return larger if self.trains and larger else scales

    @property
    def decision_cost(self) -> str:
        """Return what a decision takes: `6 h of 2 cores at hours scale, or 9 GPU h at ...`."""
        return self.price or ", or ".join(
            f"{cost}{'' if cost.gpu else ' of 2 cores'} at {scale} scale"
            for scale in self.deciding_scales
            for cost in [self.costs[scale]]
        )

    @property
    def decision_price(self) -> str:
        """Return the same if it is out of reach here, else nothing.

        That is a stated price, or a GPU or more than MOST_S at every scale that decides.
        """
        costs = [self.costs[scale] for scale in self.deciding_scales]
        is_in_reach = any(not cost.gpu and cost.least_s <= MOST_S for cost in costs)
        return "" if is_in_reach and not self.price else self.decision_cost

    @property
    def verdict_without_run(self) -> str:
        """Return `not run`, or `not decidable here`."""
        return NOT_DECIDABLE if self.decision_price else NOT_RUN

    def outcome(
        self, values: Mapping[str, Sequence[float]], scale: str, altered: bool = False
    ) -> str:
        """Return the weakest outcome of its bounds, or NOT_JUDGED where they decide nothing.

        Of several looks the first that decides counts. Seeds beyond those of a look may weaken the
        outcome of trained networks to `inconclusive`, never decide it: else one could add seeds
        until it pleases.
        """
        reached = self.reached_looks(values)
        outcomes = [self._outcome(_head(values, each), scale, altered, each) for each in reached]
        decided = next((each for each in outcomes if each in (HOLDS, BROKEN)), outcomes[-1])
        together = self._outcome(values, scale, altered, reached[-1])
        return decided if decided == together else INCONCLUSIVE

    def reached_looks(self, values: Mapping[str, Sequence[float]]) -> list[Look]:
        """Return the looks for which the seeds suffice; the first where they are too few."""
        n = max(map(len, values.values()), default=0)
        if not self.recipes or self.seeds == 1:
            return [Look(n)]
        looks = self.looks or (Look(self.seeds),)
        return [look for look in looks if look.seeds <= n] or [looks[0]]

    def describe_look(self, values: Mapping[str, Sequence[float]]) -> str:
        """Return `1 of 2: after 3 seeds, by intervals of 98 % at each end`; empty without looks."""
        if not self.looks or not values:
            return ""
        last = self.reached_looks(values)[-1]
        return (
            f"{self.looks.index(last) + 1} of {len(self.looks)}: after {last.seeds} seeds, by "
            f"intervals of {100 * last.level:g} % at each end"
        )

    def _outcome(
        self, values: Mapping[str, Sequence[float]], scale: str, altered: bool, look: Look
    ) -> str:
        """Return the weakest outcome of its bounds over all these seeds, at the look's level.

        Trained networks are judged only in the settings of a scale. Those that do not meet the
        limits decide nothing, and a bound that was not measured is inconclusive.
        """
        bounds = _at(look, self._judged_bounds(scale, altered))
        if not bounds or scale in self.unjudged_scales or (altered and self.recipes):
            return NOT_JUDGED
        if self.limits and (scale == "smoke" or not self.have_learned(values)):
            return INCONCLUSIVE if scale == "paper" and not altered else NOT_JUDGED
        outcomes = (b.verdict(values[b.metric]) for b in bounds if b.metric in values)
        missing = [INCONCLUSIVE for b in bounds if b.metric not in values]
        return min([*outcomes, *missing], key=OUTCOMES.index)

    def _judged_bounds(self, scale: str, altered: bool) -> list[Bound]:
        """Return the bounds that are judged: on a reported number at paper scale only."""
        published = scale == "paper" and not altered
        return [b for b in self.decided_by if published or b.metric not in self.reported]

    def have_learned(self, values: Mapping[str, Sequence[float]]) -> bool:
        """Return whether the networks meet all limits."""
        return all(limit.is_met(values) for limit in self.limits)

    def grades(
        self, values: Mapping[str, Sequence[float]], scale: str, altered: bool = False
    ) -> list[tuple[Quotation, Grade]]:
        """Return its quotations with their grades.

        What is printed of trained networks is tested in the published setting alone, where they
        meet the limits; more seeds than stated can only make it `not tested`.
        """
        look = self.reached_looks(values)[-1]
        judged = self._outcome(values, scale, altered, look) != NOT_JUDGED
        is_tested = (
            judged and self.have_learned(values) and (scale == "paper" or self.recipes is None)
        )
        tested = values if is_tested else {}
        return [(each, self._grade(each, tested, look)) for each in self.printed]

    def _grade(
        self, quotation: Quotation, values: Mapping[str, Sequence[float]], look: Look
    ) -> Grade:
        at_level = replace(quotation, bounds=tuple(_at(look, quotation.bounds)))
        grade = at_level.judge(values)
        if at_level.judge(_head(values, look)).grade != grade.grade:
            return Grade(NOT_TESTED, "more seeds than the claim states say another thing")
        return grade


def _head(values: Mapping[str, Sequence[float]], look: Look) -> dict[str, Sequence[float]]:
    """Return the values of the seeds of a look."""
    return {key: column[: look.seeds] for key, column in values.items()}


def _at(look: Look, bounds: Iterable[Bound]) -> list[Bound]:
    """Return the bounds at the level of a look; at the usual one each keeps its own."""
    if look.level == CONFIDENCE:
        return [*bounds]
    return [replace(bound, level=look.level) for bound in bounds]


def tags_of(judgement: Mapping[str, Any]) -> dict[str, str]:
    """Return what of a judgement a run is tagged with."""
    return {key: judgement[key] for key in TAGS}


@dataclass(frozen=True, kw_only=True)
class Theorem(Claim):
    """A claim about arrays: measured for many cells in one call, in processes of their own."""

    measure: Callable[[Cells], Curves]
    batch_by: tuple[str, ...] = ()
    """Settings that fix shapes of arrays: only cells that are equal in them share a batch."""
    batch: int = 8
    """Most cells in one call: as many as fit in memory."""
