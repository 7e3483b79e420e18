"""On CIFAR-10, too, identity shortcuts make HM's network trainable at its depth.

Source: ours, after LY Table 1 (12.04 % without skips, 6.97 % with) and HM section 4.1: the network
of HM Table 1, of 55 convolutions without normalization, against the same convolutions without
`x +`, as in `identity-beats-plain`, at HM's settings and on the data of the papers.

Measured: test error of both, with the same seeds, pictures, order, steps, schedule and parameter
count; `advantage_pct` is plain minus identity. The plain network starts as He et al. have it. At
cpu scale both peak at HM's 0.05: of six rates from 0.0005 to 0.05 none let the plain network learn
anything in a search beside this claim (LOG.md); with normalization it does (`skip-length`). At the
larger scales the plain network has a warm-up over the first tenth, which the other has not, and of
the rates 0.01, 0.005, 0.02, 0.0025 and 0.00125 the one with which it errs least on validation
pictures (one seed, which decides nothing): `plain_rate`. Nothing is judged where that is the
largest or the smallest of them (`rates_at_an_end`): a better one may lie beyond. At hours scale
seeds begin at 3: with 0 to 2 the rates were other ones (LOG.md, 2026-11-26).

At cpu scale all 55 convolutions, with 4 to 16 channels for 64 to 256, and 200 steps of 64 pictures:
too few to judge. At hours scale 31 convolutions of 16 to 64 channels see all pictures 12 times.

Run: python -m pipelines run identity-beats-plain-cifar10
     python -m pipelines run identity-beats-plain-cifar10 --scale hours
Expect at cpu scale: 75 ± 2 % against 90.1 ± 0.3 %, which is a guess; advantage_pct 15.5 ± 2.0. At
hours scale 20.3 ± 0.3 % against 56.0 ± 3.3 %; advantage_pct 35.8 ± 3.2, reproduced.
"""

from functools import partial

from pipelines.claims._arms import LEARNED_PCT, MATTERS_PCT, SMOKE, ArmBound
from pipelines.claims._comparison import compare
from pipelines.claims.ours.identity_beats_plain import ADVANTAGE, LABELS, Setting, recipes
from pipelines.measurement.verdict import LearningLimit
from pipelines.recipes.cost import hours, minutes

__all__ = ["CLAIM", "LABELS", "recipes"]

HELPED = partial(Setting, plain_rate=0.01, plain_warmup=0.1, rates=5)
CLAIM = compare(
    LABELS,
    recipes,
    ADVANTAGE,
    searched=("plain",),
    source="ours, after LY Table 1 and HM section 4.1",
    says="On CIFAR-10 HM's network, of 31 convolutions or more, has a lower error with identity "
    "shortcuts than without",
    formula=r"\begin{split} "
    r"&\mathbb{E}\, [\operatorname{err}_{\text{plain}} - \operatorname{err}_{\text{residual}}] "
    r"\ge 0.5 \text{ points}, \\ "
    r"&\text{judged where } \mathbb{E} \operatorname{err}_{\text{residual}} \le 27\,\% \\ "
    r"&\text{and the plain rate is no extreme of those tried} \end{split}",
    scales={
        "smoke": Setting(**SMOKE),
        "cpu": Setting(steps=200, batch_size=64, width=4),
        "hours": HELPED(steps=4_212, blocks_per_stage=5, width=16, first_seed=3),
        "paper": HELPED(),
    },
    decided_by=(ArmBound("advantage_pct", at_least=MATTERS_PCT),),
    costs={"cpu": minutes(6), "hours": hours(3, 7), "paper": hours(40 * 24)},
    limits=(
        LearningLimit(("identity_test_error_pct",), LEARNED_PCT),
        LearningLimit(("rates_at_an_end",), 0),
    ),
    seeds=3,
)
