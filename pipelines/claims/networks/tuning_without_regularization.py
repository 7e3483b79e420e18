"""Without dropout and augmentation the learning rate is harder to tune.

R states no answer and no number. HM's network itself is trained with augmentation, without dropout.

Measured: four searches over the same rates, for HM's network with neither, with dropout between the
convolutions of every branch, with the standard augmentation (crop and flip), and with both; where
dropout stands and its rate of 0.3 are our reading. Weight decay stays as published. The best errors
of the four, side by side, also say what HM's network gains by dropout, without which HM train it. A
trial is good whose validation error is at most a stated one, the same for all four. `share_lost` is
the share of good trials with both minus that with neither; the width of the good peak rates, in
decades, and the expected error of the best of k trials say how much harder. Each seed is another
four searches, from other weights.

The rule is ours: tuning becomes harder where a fifth of the trials or more, two rates of seven, are
lost in each of the three searches, and not where that is so in none.

The scales are those of `tuning-without-batchnorm`, whose search without normalization is the one
with augmentation here and is not repeated.

Run: python -m pipelines run tuning-without-regularization
     python -m pipelines run tuning-without-regularization --scale hours
Expect: not judged (smaller run) at cpu scale: no network comes near 30 % in 200 steps. With
neither, of one search, two of seven rates are good, 0.055 and 0.12; the best trial errs 74 %, the
largest diverges.
"""

from dataclasses import dataclass

from pipelines.claims import _arms
from pipelines.claims._tuning import TuningSearch, Variants, scales, tuning_claim
from pipelines.measurement.quotation import Quotation
from pipelines.recipes.cost import hours, minutes
from pipelines.recipes.recipe import Recipe

ARMS = ("neither", "dropout", "augmentation", "both")


@dataclass(frozen=True, kw_only=True)
class Setting(TuningSearch):
    """The search, and how much dropout."""

    dropout: float = 0.3
    """Rate at which entries are dropped between the convolutions of a branch, where any are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _arms.check_dropout(self.dropout)


def recipes(setting: Setting, seed: int) -> dict[str, Recipe]:
    """Return HM's network with neither, with one of the two, with both."""
    base = setting.base(seed)
    rates = {"dropout": setting.dropout, "both": setting.dropout}
    return {
        arm: base.override(
            augment=arm in ("augmentation", "both"), model_args={"dropout": rates.get(arm, 0.0)}
        )
        for arm in ARMS
    }


VARIANTS = Variants({a: a for a in ARMS}, harder="neither", easier="both", recipes=recipes)
CLAIM = tuning_claim(
    VARIANTS,
    source="R, an open question",
    printed=(
        Quotation(
            words="It would be interesting to find out how true this is and how much harder this "
            "tuning becomes by having discarded regularization techniques like dropout or "
            "additional data processing.",
            place="R, on HM's ImageNet results",
            note="a question, which holds or fails by nothing",
        ),
    ),
    says="Without dropout and augmentation tuning is harder: of the same learning rates fewer "
    "train the network well than with both",
    formula=r"\begin{split} "
    r"&\operatorname{share}_{\text{both}} - \operatorname{share}_{\text{neither}} \ge 0.2 "
    r"\text{ in each of three searches,} \\ "
    r"&\operatorname{share} = \text{trials whose validation error is at most } 30\,\% "
    r"\text{, over those that were drawn,} \\ "
    r"&\text{judged where the best trial of each of the four networks errs at most } 30\,\% "
    r"\end{split}",
    scales=scales(Setting),
    costs={"cpu": minutes(15), "hours": hours(16, 58)},
)
