"""On Tiny ImageNet the all-convolutional network underfits, as HM say of theirs on ImageNet.

Our own question, for ImageNet is dear (`imagenet-underfits`). It says nothing of ImageNet.

Measured, as there: training and test error at the end of the form of HM section 4.2 at a quarter of
the widths, and of one of twice the width, with the same seeds, pictures, order and steps, each at
the best of five peak rates by validation error (one seed, which decides nothing). The training
error is the trained network's on training pictures that are not augmented. `gap_pct` is test minus
training error of the network, at most 5 points; `wide_train_gain_pct` and `wide_test_gain_pct` are
what the wider network gets right more, half a point or more of each. Tested is on the labelled part
of the archive, which nothing is chosen by.

Nothing is judged where the best rate of either network is the largest or the smallest of the five
(`rates_at_an_end`), or where the network itself errs on more than 70 %: any network that has hardly
learned fits its training pictures no better than others. The length is 16 epochs. A training that
is cut short underfits, too: what is found is of this length. The narrow network's trainings are
those of `better-schedule-tiny-imagenet`.

At cpu scale 9 convolutions of 8 to 64 channels, or of 16 to 128, and 200 steps of 64 pictures, far
too few to learn: the numbers are shown, not judged.

Run: python -m pipelines data prepare tiny-imagenet
     python -m pipelines run tiny-imagenet-underfits --scale hours
Expect: not run yet. At hours scale 8 trainings of 16 epochs, and 8 of the wider network, which take
three and a half times as long.
"""

from dataclasses import dataclass
from typing import Any

from pipelines.claims import _arms
from pipelines.claims._arms import SPLITS, ArmBound
from pipelines.claims._comparison import compare
from pipelines.claims.networks import imagenet_underfits
from pipelines.claims.networks.imagenet_underfits import DIFFERENCES, GAP_PCT, LABELS
from pipelines.measurement.verdict import LearningLimit
from pipelines.recipes import differences
from pipelines.recipes.cost import hours, minutes
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.settings import Hidden


@dataclass(frozen=True, kw_only=True)
class Setting(imagenet_underfits.Setting):
    """Settings of both arms."""

    recipe: Hidden[str] = "allconv-tiny-imagenet"
    scale: Hidden[str] = "hours"
    data: Hidden[str] = "tiny-imagenet"
    steps: int = 16 * 703
    """Optimizer steps of both arms."""
    batch_size: int = 128
    """Pictures a step."""
    width: int = 20
    """Channels of the network's first stage; those of the others are in proportion."""
    rates: int = 5
    """Peak rates of each network that are tried; validation pictures choose one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _arms.check_rates(self.rates)


def recipes(setting: Any, seed: int) -> dict[str, Recipe]:
    """Return both networks, with a seed that no study has: as `better-schedule-tiny-imagenet`."""
    return imagenet_underfits.recipes(setting, seed + 1)


CLAIM = compare(
    LABELS,
    recipes,
    DIFFERENCES,
    splits=SPLITS,
    searched=tuple(LABELS),
    source="ours, after HM section 4.2",
    says="On Tiny ImageNet HM's form of network underfits: its training error is within 5 points "
    "of its test error, and one of twice the width has a lower error on both",
    formula=r"\begin{split} "
    r"&\mathbb{E}\, [\operatorname{err}^{\text{test}} - \operatorname{err}^{\text{train}}] "
    r"\le 5 \text{ points}, \\ "
    r"&\mathbb{E}\, [\operatorname{err}^{\text{train}} "
    r"- \operatorname{err}_{\text{wider}}^{\text{train}}] \ge 0.5,\quad "
    r"\mathbb{E}\, [\operatorname{err}^{\text{test}} - "
    r"\operatorname{err}_{\text{wider}}^{\text{test}}] \ge 0.5 \text{ points}, \\ "
    r"&\text{judged where } \mathbb{E} \operatorname{err}^{\text{test}} \le 70\,\% \\ "
    r"&\text{and no rate is an extreme of those tried} \end{split}",
    card=f"{__doc__}\n{differences.HEADING}\n\n{differences.table('allconv-tiny-imagenet')}\n",
    scales={
        "smoke": Setting(
            scale="smoke",
            data="digits",
            train_examples=64,
            steps=8,
            batch_size=32,
            width=4,
            rates=2,
        ),
        "cpu": Setting(scale="cpu", steps=200, batch_size=64, width=8, rates=3),
        "hours": Setting(),
    },
    decided_by=(
        ArmBound("gap_pct", at_most=GAP_PCT),
        *(ArmBound(f"wide_{split}_gain_pct", at_least=_arms.MATTERS_PCT) for split in SPLITS),
    ),
    limits=(
        LearningLimit(("narrow_test_error_pct",), _arms.TINY_IMAGENET_PCT),
        LearningLimit(("rates_at_an_end",), 0),
    ),
    unjudged_scales=("smoke", "cpu"),
    costs={"cpu": minutes(10, 20), "hours": hours(60, 100)},
    seeds=3,
)
