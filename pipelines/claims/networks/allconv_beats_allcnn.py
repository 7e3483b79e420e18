"""HM's all-convolutional residual network has a lower error than All-CNN, trained side by side.

HM Table 2 has 6.38 against 7.25 % on CIFAR-10, numbers of two papers; neither is known here to be
more than one run; here both networks are trained alike.

Measured: test error of either, All-CNN-C with its own decay and schedule. `advantage_pct` is
All-CNN minus HM's, paired by seed, of the last weights. It must be more than 0 by the interval over
seeds, our reading of "significantly". At paper scale both are the base recipes `allconv-cifar10`
and `allcnn-cifar10`, with the same 45,000 pictures, which are not whitened, and 5,000 for
validation; the claims of those names train on all 50,000.

At cpu scale 13 convolutions of 8 to 32 channels against All-CNN at a quarter of its width, for 400
steps of 64 pictures: too few to judge. At hours scale 13 convolutions of 32 to 128 channels against
half of All-CNN's width, and both see all pictures 20 times; both schedules are drawn in proportion.
All-CNN's dropout and rate are for 350 passes: here it has no dropout and half its width, so that
this scale, too, is shown and not judged. Each network has the rate at which it errs least on
validation pictures, of 0.05, which both papers have, its half, its double, a quarter and an eighth
(one seed, which decides nothing): `allconv_rate`, `allcnn_rate`. Seeds begin at 300: HM's network
with earlier ones is the fixed arm of `fixed-projection-helps`.

Run: python -m pipelines run allconv-beats-allcnn
     python -m pipelines run allconv-beats-allcnn --scale hours
Expect: not run yet at either scale.
"""

from dataclasses import dataclass

from pipelines.claims import _arms
from pipelines.claims._arms import ArmBound, Arms
from pipelines.claims._comparison import compare
from pipelines.measurement.quotation import Quotation
from pipelines.measurement.verdict import LearningLimit
from pipelines.recipes.catalog import get_recipe
from pipelines.recipes.cost import hours
from pipelines.recipes.recipe import Recipe

LABELS = {"allconv": "HM, residual", "allcnn": "All-CNN-C"}


@dataclass(frozen=True, kw_only=True)
class Setting(Arms):
    """HM's network, and All-CNN beside it."""

    allcnn_width: float = 1.0
    """Channels of All-CNN, as a share of the published."""
    allcnn_steps: int | None = None
    """Optimizer steps of All-CNN (None: 350 passes over the pictures, as published)."""
    allcnn_dropout: bool = True
    """Train All-CNN with its dropout."""
    rates: int = 1
    """Rates tried of either network: its own, a half, twice, a quarter and an eighth of it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _arms.check_rates(self.rates)
        recipes(self, 0)  # refuses what it must


def recipes(setting: Setting, seed: int) -> dict[str, Recipe]:
    """Return both networks, at the rates about which others are tried."""
    allconv = setting.base(seed)
    allcnn = get_recipe("allcnn-cifar10", "paper").override(
        data=setting.data,
        steps=setting.allcnn_steps,
        batch_size=setting.batch_size,
        seed=allconv.seed,
        model_args={"width": setting.allcnn_width, "dropout": setting.allcnn_dropout},
    )
    return {"allconv": allconv, "allcnn": allcnn}


CLAIM = compare(
    LABELS,
    recipes,
    {"advantage_pct": ("allcnn_test_error_pct", "allconv_test_error_pct")},
    searched=tuple(LABELS),
    source="HM abstract, Table 2",
    says="A residual network of convolutions and ReLU alone has a lower error on CIFAR-10 "
    "than All-CNN, the best all-convolutional network before it",
    formula=r"\begin{split} "
    r"&\mathbb{E}\, [\operatorname{err}_{\text{All-CNN}} - \operatorname{err}_{\text{HM}}] > 0, \\ "
    r"&\text{judged where } \mathbb{E} \operatorname{err}_{\text{All-CNN}}, "
    r"\mathbb{E} \operatorname{err}_{\text{HM}} \le 27\,\%, \\ "
    r"&\text{and neither rate is an extreme of those tried} \end{split}",
    scales={
        "smoke": Setting(
            data="synthetic",
            steps=8,
            batch_size=32,
            blocks_per_stage=1,
            width=4,
            allcnn_width=0.05,
            allcnn_steps=8,
        ),
        "cpu": Setting(
            steps=400,
            batch_size=64,
            blocks_per_stage=2,
            width=8,
            allcnn_width=0.25,
            allcnn_steps=400,
        ),
        "hours": Setting(
            steps=7_020,
            blocks_per_stage=2,
            width=32,
            allcnn_width=0.5,
            allcnn_steps=7_020,
            allcnn_dropout=False,
            rates=5,
            first_seed=300,
        ),
        "paper": Setting(),
    },
    decided_by=(ArmBound("advantage_pct", at_least=0),),
    printed=(
        Quotation(
            words="Our model improves significantly on previous all-convolutional networks on "
            "the CIFAR10, CIFAR100, and ImageNet classification benchmarks.",
            place="HM abstract, of three benchmarks; CIFAR-10 here",
            bounds=(ArmBound("advantage_pct", at_least=0),),
            needs={"how long HM trained, their pictures": False},
        ),
    ),
    costs={"hours": hours(17, 20), "paper": hours(15, gpu=True)},
    unjudged_scales=("smoke", "cpu", "hours"),
    limits=(*_arms.learning_limits(LABELS), LearningLimit(("rates_at_an_end",), 0)),
)
