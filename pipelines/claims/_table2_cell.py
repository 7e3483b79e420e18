"""A cell of HM Table 2 as a claim: a published recipe, its error and what is reported of it."""

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from pipelines.claims import _arm_figure
from pipelines.claims._arms import DIVERGED_PCT, ReportedArm
from pipelines.errors import Diverged
from pipelines.measurement.claim import means
from pipelines.measurement.experiment import Experiment, Trainer, Training, numbers
from pipelines.measurement.grid import Curves, Measured
from pipelines.measurement.quotation import Quotation
from pipelines.recipes import catalog, differences
from pipelines.recipes.cifar import HALF_BEST
from pipelines.recipes.recipe import Recipe

DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "imagenet": "ImageNet"}
FORMULA = (
    r"%g\,\%% \ge \overline{\operatorname{err}} "
    r"- t_{0.975,\,n-1}\, s\, \sqrt{\tfrac{1}{%d} + \tfrac{1}{n}}"
)
RULE = """\
Verdict: reproduced where {error_pct:g} % >= mean - t s sqrt(1/{count} + 1/n), the lower end of the
95 % prediction interval of {runs} like ours, over {seeds} seeds; else inconclusive where the source
leaves a setting open, and not reproduced where it does not. A seed that diverges (100 %), or errs
on 60 % or more, has not trained: with one the claim is never reproduced, and the others can still
contradict it."""
UNDECIDED = """\
Verdict: none by one seed, and a decision takes {price}: not decidable here."""
CARD = """\
{says}.

Source: {source}

{about}

{heading}

{differences}

{rule}

Run: python -m pipelines run {name} --scale paper
Cost of a seed: {cost}.
Expect at cpu scale: {expect}"""
DECODING = """

JPEGs are decoded by the exact transform, to the pixels that Pillow gives. TensorFlow's default, by
which others may have obtained their results, differs from them by one grey level on average."""
ERRORS = {  # percent: of every training, and of one that looks at the test set
    "test_error_pct": "test",
    "final_train_error_pct": "train",
    HALF_BEST: "best seen",
    "best_seen_test_error_pct": "",
    "last_5_seen_test_error_pct": "",
}
NUMBERS = (
    *ERRORS,
    "best_half_seen_test_step",  # HM see their best at about 50,000 steps
    "best_seen_test_step",
    "test_top5_error_pct",
    "parameters",
)


def table_cell(
    name: str,
    *,
    network: str,
    source: str,
    about: str,
    expect: str,
    recipe: str = "",
    runs: int = 1,
    seeds: int = 5,
    price: str = "",
    network_is_stated: bool = True,
    printed: Sequence[Quotation] = (),
) -> Experiment:
    """Return the claim that a recipe errs as its source reports.

    Its settings are those of `recipe`, or of the recipe of the claim's name; at paper scale on all
    pictures that are not for testing. The first number that the recipe has as reported, of so many
    `runs`, is the one that is compared. `source`, `about` and `expect`, what cpu scale gives, are
    for the card.
    """
    scales = catalog.RECIPES[recipe or name]
    paper = scales["paper"].override(validation=False)
    metric, reported_pct = next(iter(paper.reported.items()))
    says = f"{network} reaches {reported_pct:g} % test error on {DATA[name.partition('-')[2]]}"
    bound = ReportedArm(
        metric, reported=reported_pct, runs=runs, network_is_stated=network_is_stated
    )
    rule = RULE.format(
        error_pct=reported_pct,
        runs="one more run" if runs == 1 else f"the mean of {runs} more runs",
        count=runs,
        seeds=seeds,
    )
    return Experiment(
        source=paper.source,
        says=says,
        formula=FORMULA % (reported_pct, runs),
        card=CARD.format(
            says=says,
            source=inspect.cleandoc(source),
            about=inspect.cleandoc(about) + DECODING * name.endswith("-imagenet"),
            heading=differences.HEADING,
            differences=differences.table(name),
            rule=UNDECIDED.format(price=price) if price else rule,
            name=name,
            cost="; ".join(f"{scale} {cost}" for scale, cost in paper.costs.items()),
            expect=expect,
        ),
        scales={**scales, "paper": paper},
        decided_by=(bound,),
        measure=measure,
        recipes=lambda setting, seed: {"trained": shift_seed(setting, seed)},
        extra_metrics=extra_metrics,
        figure=partial(figure, network=network, reported={ERRORS[metric]: reported_pct}),
        reported=dict(paper.reported),
        price=price,
        printed=tuple(printed),
        seeds=seeds,
        costs={scale: cost * seeds for scale, cost in paper.costs.items()},
    )


def shift_seed(recipe: Recipe, seed: int) -> Recipe:
    """Return the recipe with a seed after its own."""
    return recipe.override(seed=recipe.seed + seed)


def measure(recipe: Recipe, seed: int, trainer: Trainer) -> Curves:
    """Return errors of the trained network in percent, where it was best, its size; `diverged`.

    A network whose loss diverges (1, else 0) answers nothing: it errs everywhere.
    """
    try:
        metrics, diverged = trainer.train(shift_seed(recipe, seed)).metrics, 0.0
    except Diverged:
        metrics, diverged = dict.fromkeys(_names_of(recipe), DIVERGED_PCT), 1.0
        metrics |= {key: np.nan for key in metrics if key not in ERRORS}
    found = {key: metrics[key] for key in NUMBERS if key in metrics}
    return numbers(found | {"diverged": diverged})


def _names_of(recipe: Recipe) -> list[str]:
    """Return the numbers that a training of the recipe ends with, as far as a cell has them."""
    without = set() if recipe.test_every else {key for key in NUMBERS if "seen" in key}
    if recipe.data != "imagenet2012":
        without.add("test_top5_error_pct")
    return [key for key in NUMBERS if key not in without]


def extra_metrics(measured: Sequence[Measured]) -> dict[str, float]:
    """Return the numbers that decide nothing."""
    names = (*NUMBERS, "diverged")
    return means(*(key for key in names if key in measured[0].curves))(measured)


def figure(
    measured: Sequence[Measured],
    trainings: Sequence[Sequence[Training]],
    network: str,
    reported: Mapping[str, float],
) -> Any:
    """Draw how the network learns, its errors at the end, and the one that is reported.

    Seeds that diverged are named.
    """
    splits = {split: key for key, split in ERRORS.items() if split and key in measured[0].curves}
    lost = np.array([bool(m.curves["diverged"][0]) for m in measured])
    errors = {
        split: np.where(lost, np.nan, [m.curves[splits[split]][0] for m in measured])
        for split in sorted(splits, key=["train", "test", "best seen"].index)
    }
    found = [next(iter(each), None) for each in trainings]
    shown = {split: pct for split, pct in reported.items() if split in errors}
    arm = _arm_figure.Arm(network, errors, found, shown)
    return _arm_figure.draw([arm], [m.cell.seed for m in measured])
