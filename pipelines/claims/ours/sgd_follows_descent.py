"""A linear residual network trained on samples follows gradient descent on the population risk.

HM's theorems are about the population risk f. What they say of a network that is really trained, on
samples and by stochastic gradient descent, depends on how near the two paths are.

Measured: the Keras network `linear_resnet`, trained by `train.py` from the identity on 4,096
samples in batches, and gradient descent on f from the same start at the same rate (theory). Both
record `val_loss` over the same steps, as runs below the same setting, whose page links to the
MLflow chart in which they lie over each other. `deviation_pct` is the largest difference of the two
at the ends of epochs, in percent of the risk at the start. Where little risk is left the two may
differ by a factor, the training being some steps ahead or behind: `excess_ratio` is the largest
quotient of their excesses over the noise, either way round, while the population's is over 1 % of
its start.

Run: python -m pipelines run sgd-follows-descent
     python -m pipelines sweep sgd-follows-descent --grid batch_size=16:1024:4x
Expect: deviation_pct about 0.5, excess_ratio about 1.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.claims._figures import panels
from pipelines.data import generated
from pipelines.errors import check_sizes
from pipelines.measurement.claim import reductions
from pipelines.measurement.experiment import Experiment, Trainer
from pipelines.measurement.grid import Array, Curves, Measured
from pipelines.measurement.verdict import Bound
from pipelines.recipes.catalog import get_recipe
from pipelines.recipes.cost import seconds
from pipelines.recipes.recipe import Recipe
from theory.linear_resnet import descent_path, excess_risk


@dataclass(frozen=True)
class Setting:
    """Settings that may differ from the recipe `linear-teacher`."""

    l: int = 8  # noqa: E741 - the paper's letter
    """Depth."""
    gamma: float = 0.5
    """Conditioning of the target: its largest |log singular value|."""
    batch_size: int = 256
    """Samples a step."""
    steps: int = 400
    """Steps of both."""

    def __post_init__(self) -> None:
        check_sizes(1, l=(self.l,), batch_size=(self.batch_size,), steps=(self.steps,))
        check_sizes(0, gamma=(self.gamma,))


def recipes(setting: Setting, seed: int) -> dict[str, Recipe]:
    """Return the network that is trained."""
    base = get_recipe("linear-teacher").override(
        model_args={"depth": setting.l},
        data_args={"gamma": setting.gamma, "data_seed": seed},
        batch_size=setting.batch_size,
        steps=setting.steps,
        seed=seed,
    )
    return {"trained": base}


def measure(setting: Setting, seed: int, trainer: Trainer) -> Curves:
    """Return both validation losses by epoch; their difference in percent of the start."""
    recipe = recipes(setting, seed)["trained"]
    steps, trained = trainer.curve(trainer.train(recipe), "val_loss")
    risk = population_risk(recipe)
    population = risk[steps]
    deviation = 100 * np.abs(trained - population) / risk[0]
    return steps, {
        "trained": trained,
        "population": population,
        "deviation_pct": deviation,
        "excess_ratio": excess_ratio(recipe, risk[0], trained, population),
    }


def excess_ratio(recipe: Recipe, start: float, trained: Array, population: Array) -> Array:
    """Return the quotient of the excesses over the noise, at least 1; 1 where they are small."""
    floor = recipe.data_args["dimension"] * recipe.data_args["noise"] ** 2
    quotient = np.maximum(trained - floor, 1e-12) / (population - floor)
    much = population - floor > 0.01 * (start - floor)
    return np.where(much, np.exp(np.abs(np.log(quotient))), 1.0)


def population_risk(recipe: Recipe) -> Array:
    """Return f(A_t) at the steps t = 0, 1, ... of descent from the identity; [steps + 1]."""
    d, noise, seed = (recipe.data_args[key] for key in ("dimension", "noise", "data_seed"))
    R = generated.linear_target(d, recipe.data_args["gamma"], seed)
    sigma = generated.covariance(d, recipe.data_args["condition"], seed)
    start, steps = np.zeros((recipe.model_args["depth"], d, d)), recipe.steps or 0
    path = descent_path(start, R, sigma, recipe.learning_rate, steps)
    return np.array([float(excess_risk(A, R, sigma)) for A in path]) + float(d * noise**2)


def figure(measured: Sequence[Measured]) -> Any:
    """Draw validation loss of the training and population risk of the descent, one pair a run."""
    picture, (left, right) = panels(2)
    for i, m in enumerate(measured):
        colour = f"C{i % 10}"
        left.plot(m.steps, m.curves["population"], "--", color=colour, lw=1)
        left.plot(m.steps, m.curves["trained"], "o", color=colour, ms=3)
        right.plot(m.steps, m.curves["deviation_pct"], "o-", color=colour, ms=3)
        left.plot([], [], color=colour, label=f"seed {m.cell.seed}")
    left.plot([], [], "ko", ms=3, label="trained on samples: validation loss")
    left.plot([], [], "k--", lw=1, label="gradient descent on the population risk")
    left.set(yscale="log", xlabel="step", ylabel="E |h(x) - y|²")
    left.legend(fontsize=8)
    right.set(xlabel="step", ylabel="difference (% of the risk at the start)")
    right.set_ylim(bottom=0)
    return picture


CLAIM = Experiment(
    source="ours, after HM section 2",
    says="A linear residual network trained by SGD on samples follows gradient descent on the "
    "population risk",
    formula=r"\begin{split} "
    r"&\mathbb{E} \max_t \frac{\lvert L_{\text{SGD}}(t) - f(A(t)) \rvert}{f(A(0))} \le 1\,\% "
    r"\text{ over the ends } t \text{ of epochs}, \\ "
    r"&A(t + 1) = A(t) - \eta \nabla f(A(t)) \end{split}",
    family="linear theory",
    charts=(("trained", "population"), ("deviation_pct",)),
    scales={"smoke": Setting(l=2, steps=32), "cpu": Setting()},
    decided_by=(Bound("deviation_pct", at_most=1),),
    measure=measure,
    recipes=recipes,
    extra_metrics=reductions(excess_ratio=np.max),
    figure=lambda measured, _: figure(measured),
    costs={"cpu": seconds(18)},
    seeds=3,
)
