"""Claims that are one cell of a table: a published network, and the test error reported of it."""

import inspect
from collections.abc import Sequence
from statistics import mean
from typing import Any

from pipelines.claims._arms import DIVERGED_PCT
from pipelines.errors import Diverged
from pipelines.measurement.claim import Bench, Experiment, means, numbers
from pipelines.measurement.grid import Curves, Measured
from pipelines.measurement.verdict import Bound, standard_deviation
from pipelines.recipes import catalog
from pipelines.recipes.recipe import Recipe

NEAR = 1.05  # of the reported error, which is of one run, or of the best of several: our rule
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "imagenet": "ImageNet"}
RULE = """\
Verdict: the mean test error of five seeds is at most 1.05 times the reported one, by its confidence
interval."""
RULE_OF_ONE = """\
Verdict: at most 1.05 times the reported error. One seed, the default, is `inconclusive`: the
interval needs --seeds 2 or more, each at the full cost."""
CARD = """\
{says}.

Source: {source}

{about}

{rule}

Run: python -m pipelines run {name} --scale paper
Cost of a seed: {cost}.
Expect at cpu scale: {expect}"""
NUMBERS = (
    "test_error_pct",
    "final_train_error_pct",
    "test_top5_error_pct",
    "best_step",  # where the validation error was least: HM see their best at about 50,000 steps
    "parameters",
)


def table_cell(
    name: str, *, network: str, source: str, about: str, expect: str, seeds: int = 5
) -> Experiment:
    """Return the claim that a recipe errs no more than reported, within 5 % of it.

    Its settings at each scale are the recipe of that name itself. One seed decides nothing: a mean
    over seeds does, by its confidence interval. `source`, `about` and `expect`, what cpu scale
    gives, are for the card.
    """
    scales = catalog.RECIPES[name]
    paper = scales["paper"]
    error_pct = paper.reported["test_error_pct"]
    says = f"{network} reaches {error_pct:g} % test error on {DATA[name.partition('-')[2]]}"
    return Experiment(
        source=paper.source,
        says=says,
        card=CARD.format(
            says=says,
            source=inspect.cleandoc(source),
            about=inspect.cleandoc(about),
            rule=RULE if seeds > 1 else RULE_OF_ONE,
            name=name,
            cost=paper.cost,
            expect=expect,
        ),
        family="trained networks",
        scales=scales,
        decided_by=(Bound("test_error_pct", at_most=NEAR * error_pct),),
        measure=measure,
        recipes=lambda recipe, seed: {"trained": shift_seed(recipe, seed)},
        also=also,
        figure=lambda measured: figure(measured, error_pct),
        reported=paper.reported,
        seeds=seeds,
        costs=split_costs(paper),
    )


def split_costs(recipe: Recipe) -> dict[str, str]:
    """Return by scale what a seed of the recipe takes: `{"paper": "2 GPU hours a seed"}`."""
    costs = (cost.split(": ", 1) for cost in recipe.cost.split("; "))
    return {scale: f"{cost} a seed" for scale, cost in costs}


def shift_seed(recipe: Recipe, seed: int) -> Recipe:
    """Return the recipe with a seed after its own."""
    return recipe.override(seed=recipe.seed + seed)


def measure(recipe: Recipe, seed: int, bench: Bench) -> Curves:
    """Return errors of the trained network in percent of its splits, its best step and its size.

    A network whose loss diverges answers nothing: it errs everywhere.
    """
    try:
        metrics = bench.train(shift_seed(recipe, seed)).metrics
    except Diverged:
        metrics = dict.fromkeys(NUMBERS[:2], DIVERGED_PCT)
    return numbers({key: metrics[key] for key in NUMBERS if key in metrics})


def also(measured: Sequence[Measured]) -> dict[str, float]:
    """Return the numbers that decide nothing."""
    return means(*(key for key in NUMBERS[1:] if key in measured[0].curves))(measured)


def figure(measured: Sequence[Measured], reported: float) -> Any:
    """Draw test and training error of every seed, mean ± sd; the reported test error, dashed."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(6, 4), layout="constrained")
    axes = picture.add_subplot(xlabel="seed", ylabel="error (%)")
    seeds = [m.cell.seed for m in measured]
    for key, label, mark, colour in (
        ("test_error_pct", "test", "o", "C0"),
        ("final_train_error_pct", "train", "^", "C1"),
    ):
        errors = [float(m.curves[key][0]) for m in measured]
        axes.plot(seeds, errors, mark, color=colour, label=label)
        axes.axhline(mean(errors), color=colour, lw=1)
        if len(errors) > 1:
            sd = standard_deviation(errors)
            axes.axhspan(mean(errors) - sd, mean(errors) + sd, color=colour, alpha=0.15)
    axes.axhline(reported, ls="--", color="C3", label=f"test, reported: {reported:g} %")
    axes.axhspan(0, NEAR * reported, color="C3", alpha=0.1, label="as good as reported")
    axes.set_xticks(seeds)
    axes.margins(x=0.2, y=0.2)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)
    return picture
