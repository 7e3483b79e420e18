"""Without dropout HM's network errs hardly more on CIFAR-10 than with it, after equal training.

HM give no numbers for a network with it, and do not say where in theirs it would stand, nor at
which rate.

Measured: training and test errors of HM's network, and of the same with dropout between the two
convolutions of every residual branch, where Zagoruyko and Komodakis 2016 have it, at a rate of 0.3
(`dropout`), with the same seeds, pictures, order and steps. `dropout_gain_pct` is the test error
without dropout minus that with it.

A regularizer can be needed only where a network overfits. It is judged where without dropout the
training error is at most half of the test error (`fitted_share`). After few passes this is not so,
and dropout, which slows the fit, could hardly gain anything: what is measured then is shown, and
decides nothing.

At cpu scale 13 convolutions of 8 to 32 channels and 500 steps of 64 pictures. At hours scale 13
convolutions of 32 to 128 channels see all pictures 20 times; its networks without dropout are those
of batchnorm-overfits and fixed-projection-helps, whose training error, 16 %, is above half of their
test error, 18 %: it is shown and not judged. At paper scale HM's network, trained as the base
recipe `allconv-cifar10`: 64,000 steps on 45,000 pictures. HM do not say where dropout would stand,
so that a gain by ours is inconclusive.

Run: python -m pipelines run no-need-for-dropout
     python -m pipelines run no-need-for-dropout --scale hours
     python -m pipelines sweep no-need-for-dropout --scale hours --grid dropout=0.1,0.3,0.5
Expect at cpu scale: 66.0 and 65.7 %, dropout_gain_pct 0.4 ± 0.5, fitted_share 1.01 ± 0.01: too few
steps to judge. The other scales were not run.
"""

from dataclasses import dataclass

from pipelines.claims import _arms
from pipelines.claims._arms import SPLITS, ArmBound, Arms
from pipelines.claims._comparison import Numbers, compare
from pipelines.measurement.quotation import Quotation
from pipelines.measurement.verdict import LearningLimit
from pipelines.recipes.cost import hours, minutes
from pipelines.recipes.recipe import Recipe

LABELS = {"without": "without dropout", "dropout": "dropout in every branch"}
LEAST_PCT = 0.01  # one picture of the test set
FITTED = 0.5  # training error over test error: a network that overfits


@dataclass(frozen=True, kw_only=True)
class Setting(Arms):
    """The network, and how much dropout."""

    dropout: float = 0.3
    """Rate at which entries are dropped between the convolutions of a branch, in one arm."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _arms.check_dropout(self.dropout)


def recipes(setting: Setting, seed: int) -> dict[str, Recipe]:
    """Return HM's network, and the same with dropout."""
    base = setting.base(seed)
    return {"without": base, "dropout": base.override(model_args={"dropout": setting.dropout})}


def fitted_share(errors: Numbers) -> Numbers:
    """Return how far the network without dropout fits."""
    train, test = (errors[f"without_{split}_error_pct"] for split in SPLITS)
    return {"fitted_share": train / max(test, LEAST_PCT)}


CLAIM = compare(
    LABELS,
    recipes,
    {"dropout_gain_pct": ("without_test_error_pct", "dropout_test_error_pct")},
    fitted_share,
    splits=SPLITS,
    source="HM section 1.1",
    says="HM's network has no need for dropout: without it, it errs at most half a point more on "
    "CIFAR-10 than with it",
    formula=r"\begin{split} &\mathbb{E}\, [\operatorname{err}_{\text{without dropout}} "
    r"- \operatorname{err}_{\text{with dropout}}] \le 0.5 \text{ points}, \\ "
    r"&\text{judged where } \mathbb{E} \operatorname{err}_{\text{without}}, "
    r"\; \mathbb{E} \operatorname{err}_{\text{with}} \le 27\,\% \\ "
    r"&\text{and } \mathbb{E}\, [ \operatorname{err}^{\text{train}}_{\text{without}} / "
    r"\operatorname{err}_{\text{without}} ] \le \tfrac12 \end{split}",
    scales={
        "smoke": Setting(**_arms.SMOKE),
        "cpu": Setting(steps=500, batch_size=64, blocks_per_stage=2, width=8),
        "hours": Setting(steps=7_020, blocks_per_stage=2, width=32, first_seed=2),
        "paper": Setting(),
    },
    decided_by=(ArmBound("dropout_gain_pct", at_most=_arms.MATTERS_PCT),),
    printed=(
        Quotation(
            words="The only regularizer is standard weight decay (l2-regularization) and there is "
            "no need for dropout.",
            place="HM section 1.1",
            needs={"where dropout would stand, and its rate": False},
            bounds=(ArmBound("dropout_gain_pct", at_most=0),),
            note="of dropout at a rate of 0.3 between the convolutions of every branch",
        ),
    ),
    costs={
        "cpu": minutes(5),
        "hours": hours(6, 8),  # batchnorm-overfits has as many trainings of this size
        "paper": hours(24 * 24),
    },
    limits=(*_arms.learning_limits(LABELS), LearningLimit(("fitted_share",), FITTED)),
    unjudged_scales=("smoke", "cpu", "hours"),
    shown=("fitted_share",),
    seeds=3,
)
