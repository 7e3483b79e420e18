"""Without normalization the learning-rate schedule is harder to tune.

Source: ours, after an open question of R, which asks what discarding regularization costs in tuning
(`tuning-without-regularization`); batch normalization is our version of it.

Measured: two searches over the same rates, for HM's network and for the same with batch
normalization after each convolution of a branch, which starts from weights of 1/(k sqrt c): from
HM's it hardly learns (`batchnorm-overfits`). A trial is good whose validation error is at most a
stated one, the same for both. `share_lost` is the share of good trials with normalization minus
that without; the width of the good peak rates, in decades, and the expected error of the best of k
trials say how much harder. Each seed is another pair of searches, from other weights.

The rule is ours: tuning is harder where a fifth of the trials or more, two rates of seven, are lost
in each of the three searches, and not where that is so in none.

At cpu scale 7 convolutions of 8 to 32 channels on CIFAR-10, 200 steps of 64 pictures, good at 80 %;
at hours scale 13 convolutions of 16 to 64 channels for 12 epochs, good at 30 %: seven rates, from
1/21 to 5.4 times HM's. At paper scale 100 schedules drawn at random, good at 10 %.

Run: python -m pipelines run tuning-without-batchnorm
     python -m pipelines run tuning-without-batchnorm --scale hours
Expect: not judged (smaller run) at cpu scale: no network comes near 30 % in 200 steps. At hours
scale HM's network errs 25.1 % on validation pictures at HM's rate (a pilot of one seed).
"""

from pipelines.claims._tuning import TuningSearch, Variants, scales, tuning_claim
from pipelines.claims.networks.batchnorm_overfits import LABELS, recipes
from pipelines.recipes.cost import hours, minutes

__all__ = ["CLAIM", "VARIANTS", "recipes"]

VARIANTS = Variants(LABELS, harder="plain", easier="normalized", recipes=recipes)
CLAIM = tuning_claim(
    VARIANTS,
    source="ours, after an open question of R",
    says="Without normalization tuning is harder: of the same learning rates fewer train the "
    "network well than with batch normalization",
    formula=r"\begin{split} "
    r"&\operatorname{share}_{\text{normalized}} - \operatorname{share}_{\text{plain}} \ge 0.2 "
    r"\text{ in each of three searches,} \\ "
    r"&\operatorname{share} = \text{trials whose validation error is at most } 30\,\% "
    r"\text{, over those that were drawn,} \\ "
    r"&\text{judged where the best trials of both networks err at most } 30\,\% \end{split}",
    scales=scales(TuningSearch),
    costs={"cpu": minutes(8), "hours": hours(9, 34)},
)
