"""Deeper plain networks err more on their training pictures than shallower ones; residual ones not.

B's slide is of He et al. 2015 section 4.2, networks with batch normalization on CIFAR-10. We judge
the order, no numbers.

Measured: training and test error at the end of He et al.'s networks of 20 and 56 layers, plain and
residual, trained alike as He et al. train them, with the same seeds, pictures and order, and within
a depth with the same parameters. The training error is the trained network's on training pictures
that are not augmented. `plain_degradation_pct` and `residual_degradation_pct` are the training
errors of 56 minus those of 20 layers. The same of test errors, `..._test_degradation_pct`, decides
nothing: the slide is about optimization.

At cpu scale 4 to 16 channels for 16 to 64, and 200 steps of 64 pictures: too few to judge. At hours
scale the published networks see all pictures 24 times, where He et al. show them 164 times: after 8
passes what differs is how fast they learn. 45,000 pictures are trained on, where He et al. have
50,000. Of what has not learned at 20 layers nothing is lost at 56: hence the limits. It is judged
after three seeds, and, where they leave it open, six.

Run: python -m pipelines run depth-degrades-plain-nets
     python -m pipelines run depth-degrades-plain-nets --scale hours
Expect: not run yet at either scale.
"""

from dataclasses import dataclass

from pipelines.claims import _arms
from pipelines.claims._arms import SPLITS, ArmBound, Arms
from pipelines.claims._comparison import compare
from pipelines.errors import check_counts
from pipelines.measurement.verdict import TWO_LOOKS
from pipelines.recipes.cost import hours
from pipelines.recipes.recipe import Recipe
from pipelines.recipes.settings import Hidden

LABELS = {
    "plain20": "plain, 20 layers",
    "plain56": "plain, 56",
    "residual20": "residual, 20",
    "residual56": "residual, 56",
}


@dataclass(frozen=True, kw_only=True)
class Setting(Arms):
    """The networks of He et al., trained as they train those of these depths."""

    recipe: Hidden[str] = "resnet-cifar10"
    width: int = 16
    learning_rate: float = 0.1
    blocks_per_stage: int = 9
    """Residual blocks in each stage of the deep networks: 6 times as many layers, and 2."""
    shallow_blocks: int = 3
    """The same of the shallow networks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(shallow_blocks=self.shallow_blocks)


def recipes(setting: Setting, seed: int) -> dict[str, Recipe]:
    """Return plain and residual networks of either depth; a warm-up is for 110 layers only."""
    base = setting.base(seed).override(warmup=0.0)
    depths = {"20": setting.shallow_blocks, "56": setting.blocks_per_stage}
    return {
        f"{kind}{layers}": base.override(
            model_args={"shortcut": shortcut, "blocks_per_stage": blocks}
        )
        for kind, shortcut in (("plain", "none"), ("residual", "pad"))
        for layers, blocks in depths.items()
    }


CLAIM = compare(
    LABELS,
    recipes,
    {
        "plain_degradation_pct": ("plain56_train_error_pct", "plain20_train_error_pct"),
        "plain_test_degradation_pct": ("plain56_test_error_pct", "plain20_test_error_pct"),
        "residual_degradation_pct": ("residual56_train_error_pct", "residual20_train_error_pct"),
        "residual_test_degradation_pct": ("residual56_test_error_pct", "residual20_test_error_pct"),
    },
    splits=SPLITS,
    source="B, plain and residual networks, after He et al. 2015 section 4.2",
    says="Deeper plain networks have higher training error than shallower ones, and deeper "
    "residual networks have not",
    formula=r"\begin{split} &\mathbb{E}\, [\operatorname{err}_{\text{plain, 56}}^{\text{train}} "
    r"- \operatorname{err}_{\text{plain, 20}}^{\text{train}}] \ge 0.5,\quad "
    r"\mathbb{E}\, [\operatorname{err}_{\text{residual, 56}}^{\text{train}} "
    r"- \operatorname{err}_{\text{residual, 20}}^{\text{train}}] \le 0.5 \text{ points}, \\ "
    r"&\text{judged where the test errors } \mathbb{E} \operatorname{err}_{\text{residual, 20}}, "
    r"\mathbb{E} \operatorname{err}_{\text{residual, 56}}, "
    r"\mathbb{E} \operatorname{err}_{\text{plain, 20}} \le 27\,\% \end{split}",
    scales={
        "smoke": Setting(
            data="digits", steps=8, batch_size=32, blocks_per_stage=2, shallow_blocks=1, width=4
        ),
        "cpu": Setting(steps=200, batch_size=64, width=4),
        "hours": Setting(steps=8_424),
        "paper": Setting(),
    },
    decided_by=(
        ArmBound("plain_degradation_pct", at_least=_arms.MATTERS_PCT),
        ArmBound("residual_degradation_pct", at_most=_arms.MATTERS_PCT),
    ),
    costs={"hours": hours(13, 67)},
    limits=_arms.learning_limits(("residual20", "residual56", "plain20")),
    **TWO_LOOKS,
)
