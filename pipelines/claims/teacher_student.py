"""With the identity link a two-layer ReLU student learns its teacher; without it, it stalls.

Source: LY section 5.2, Figure 7. Targets are f(x, W*) = sum_i relu(<e_i + w*_i, x>), x ~ N(0, I) in
d = 100 dimensions, 100,000 samples; W* and the start W have norm 0.6, Frobenius norms 5.7 and 5.0,
which Gaussian entries cannot have: singular values in a line can, between random rotations. The
students descend by batches of 200: "ResLink" is f(x, W); "3-Block" is three times linear map, batch
normalization and ReLU, our reading; "vanilla" is sum_i relu(<w_i, x>). LY do not say what teaches
vanilla: it learns from ResLink's teacher and, as `vanilla_own`, from one without the identity.

Measured: training, validation and test loss of all four, and |B - B*|_F, the distance to the
teacher, of those with a matrix: B = I + W, or W. Beside them gradient descent on the population
loss from ResLink's start, in closed form (theory.relu_population). `reslink_end_loss` is the
largest of ResLink's three losses at the end, `reslink_end_distance_ratio` the distance over that at
the start. Figure 7 again: losses and distances over epochs, the population's dashed.

At paper scale LY's rate of 0.001 for 45,000 steps, 90 epochs, our reading; at cpu scale five times
the rate for 10,000, and 100 units a layer in the 3-Block instead of 500.

Run: python -m pipelines run teacher-student        (6 minutes on 2 cores)
Expect: ResLink's test loss 1.06e-4 ± 0.08e-4, its distance 0.51 % of that at the start; vanilla
3.31 ± 0.03, taught without the identity 0.81 ± 0.01; 3-Block 3.24 ± 0.15.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines import quiet, samples
from pipelines.claim import Bench, Experiment
from pipelines.errors import Diverged, UserError, check_counts
from pipelines.grid import Curves, Measured
from pipelines.published import named
from pipelines.recipes import Recipe
from pipelines.verdict import Bound
from theory.relu_weights import singular_values

Array = NDArray[np.float64]

ARMS = {
    "reslink": "ResLink",
    "vanilla": "vanilla",
    "vanilla_own": "vanilla, taught without identity",
    "three_block": "3-Block",
}
POPULATION_RATE = 2.0  # over the dimension: of the steps of the population descent


@dataclass(frozen=True)
class Setting:
    """What may differ from the recipe `relu-teacher`."""

    d: int = 100
    """Dimension of the inputs."""
    frobenius: float = 5.7
    """Frobenius norm of the teacher's W*."""
    start_frobenius: float = 5.0
    """Frobenius norm of the student's W at the start."""
    train_size: int = 100_000
    """Training samples."""
    batch_size: int = 200
    """Samples a step."""
    learning_rate: float = 1e-3
    """Rate of all students."""
    steps: int = 45_000
    """Steps of all students."""
    hidden: int = 500
    """Units in each layer of the 3-Block."""

    def __post_init__(self) -> None:
        check_counts(d=self.d, train_size=self.train_size, steps=self.steps, hidden=self.hidden)
        for recipe in recipes(self, 0).values():
            recipe.steps_over(self.train_size)  # refuses what it must
            check_norms(recipe)


def recipes(setting: Setting, seed: int) -> dict[str, Recipe]:
    """The four students."""
    base = named("relu-teacher").override(
        model_args={"start_frobenius": setting.start_frobenius, "hidden": setting.hidden},
        data_args={
            "dimension": setting.d,
            "train_size": setting.train_size,
            "teacher_frobenius": setting.frobenius,
            "data_seed": seed,
        },
        batch_size=setting.batch_size,
        learning_rate=setting.learning_rate,
        steps=setting.steps,
        seed=seed,
    )
    return {
        "reslink": base,
        "vanilla": base.override(model_args={"variant": "vanilla"}),
        "vanilla_own": base.override(
            model_args={"variant": "vanilla"}, data_args={"teacher_identity": False}
        ),
        "three_block": base.override(model_args={"variant": "three-block"}),
    }


def check_norms(recipe: Recipe) -> None:
    """Reject a Frobenius norm that the teacher, or the student at the start, cannot have."""
    data, model = recipe.data_args, recipe.model_args
    for option, norm, frobenius in (
        ("--frobenius", data["teacher_norm"], data["teacher_frobenius"]),
        ("--start-frobenius", model["start_norm"], model["start_frobenius"]),
    ):
        try:
            singular_values(data["dimension"], norm, frobenius)
        except ValueError as error:
            raise UserError(f"{error} The norm is the recipe's: set {option} or --d.") from error


def measure(setting: Setting, seed: int, bench: Bench) -> Curves:
    """Losses and distances of the students at the ends of epochs, and of the population descent."""
    found, steps = recipes(setting, seed), validations(setting)
    W, target = start(found["reslink"]), teacher(found["reslink"])
    population = population_descent(W, target, setting.learning_rate * np.diff([0, *steps]))
    bench.add("population descent", found["reslink"].flat(), steps, population)
    curves = {f"population_{name}": curve for name, curve in population.items()}
    for arm, recipe in found.items():
        trained = student(bench, recipe, len(steps))
        curves |= {f"{arm}_{name}": curve for name, curve in trained.items()}
    curves["reslink_distance_ratio"] = curves["reslink_distance"] / np.linalg.norm(W - target)
    return steps, curves


def student(bench: Bench, recipe: Recipe, epochs: int) -> dict[str, Array]:
    """Curves of one training, with the last test loss as a level; [epochs], inf if it diverged."""
    names = ["train_loss", "val_loss"]
    names += ["distance"] * (recipe.model_args["variant"] != "three-block")
    try:
        result = bench.train(recipe)
    except Diverged:
        return {name: np.full(epochs, np.inf) for name in [*names, "test_loss"]}
    curves = {name: bench.curve(result, name)[1] for name in names}
    return curves | {"test_loss": np.full(epochs, result.metrics["test_loss"])}


def validations(setting: Setting) -> list[int]:
    """The steps after which the students are validated: the ends of epochs."""
    epoch = setting.train_size // setting.batch_size
    return [*range(epoch, setting.steps, epoch), setting.steps]


def start(recipe: Recipe) -> Array:
    """W [d, d] of ResLink before its first step, as the seed draws it."""
    quiet.keras()
    import keras

    import keras_models
    from keras_models.two_layer import matrix

    keras.utils.set_random_seed(recipe.seed)
    d = recipe.data_args["dimension"]
    B = matrix(keras_models.build(recipe.model, (d,), 1, **recipe.model_args))
    return np.asarray(B) - np.eye(d)


def teacher(recipe: Recipe) -> Array:
    """W* [d, d] of the teacher of ResLink."""
    keys = ("dimension", "data_seed", "teacher_norm", "teacher_frobenius")
    d, seed, norm, frobenius = (recipe.data_args[key] for key in keys)
    return samples.relu_target(d, seed, norm, frobenius, identity=False)


def population_descent(W: Array, target: Array, times: Array) -> dict[str, Array]:
    """Gradient descent on the population loss for those times, rate times steps, one after another.

    `loss` and `distance` after each; [k].
    """
    from theory.relu_population import gradient, loss

    losses, distances = [], []
    for time in times:
        iterations = int(np.ceil(time * len(W) / POPULATION_RATE))
        for _ in range(iterations):
            W = W - time / iterations * gradient(W, target)
        losses.append(loss(W, target))
        distances.append(np.linalg.norm(W - target))
    return {"loss": np.array(losses), "distance": np.array(distances)}


def also(measured: Sequence[Measured]) -> dict[str, float]:
    """ResLink at the end, its largest loss and its relative distance; what stands beside them."""
    ends = [{key: float(curve[-1]) for key, curve in m.curves.items()} for m in measured]
    worst = {key: max(each[key] for each in ends) for key in ends[0]}
    losses = [worst[f"reslink_{name}_loss"] for name in ("train", "val", "test")]
    kept = (*CLAIM.reported, "reslink_distance", "vanilla_distance", "population_loss")
    return {
        "reslink_end_loss": max(losses),
        "reslink_end_distance_ratio": worst["reslink_distance_ratio"],
        **{key: worst[key] for key in kept},
    }


def figure(measured: Sequence[Measured]) -> Any:
    """Figure 7 of LY: validation losses and distances to the teacher over epochs, a line a seed."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(10, 4), layout="constrained")
    left, right = picture.subplots(1, 2)
    for m in measured:
        epochs = m.steps / m.steps[0]
        for colour, arm in enumerate(ARMS):
            left.plot(epochs, m.curves[f"{arm}_val_loss"], color=f"C{colour}", lw=1)
            if f"{arm}_distance" in m.curves:
                right.plot(epochs, m.curves[f"{arm}_distance"], color=f"C{colour}", lw=1)
        left.plot(epochs, m.curves["population_loss"], "k--", lw=1)
        right.plot(epochs, m.curves["population_distance"], "k--", lw=1)
    for colour, label in enumerate(ARMS.values()):
        left.plot([], [], color=f"C{colour}", label=label)
    left.plot([], [], "k--", lw=1, label="population descent")
    left.set(yscale="log", xlabel="epoch", ylabel="validation loss")
    right.set(xlabel="epoch", ylabel="||B - B*||, Frobenius")
    for axes in (left, right):
        axes.locator_params(axis="x", integer=True)
    right.set_ylim(bottom=0)
    picture.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=5)
    return picture


PAPER = Setting()
CLAIM = Experiment(
    source="LY section 5.2, Figure 7",
    says="With the identity link a student learns its teacher: training and test error reach 0 "
    "and W reaches W*; without it, or with three blocks, they do not",
    family="two-layer ReLU networks",
    charts=(
        ("reslink_val_loss", "vanilla_val_loss", "three_block_val_loss", "population_loss"),
        ("reslink_distance", "vanilla_distance", "population_distance"),
    ),
    scales={
        "smoke": Setting(8, 1.6, 1.4, 2_000, learning_rate=0.02, steps=80, hidden=16),
        "cpu": Setting(learning_rate=5e-3, steps=10_000, hidden=100),
        "paper": PAPER,
    },
    decided_by=(
        Bound("reslink_end_loss", at_most=1e-3, every=True),
        Bound("reslink_end_distance_ratio", at_most=0.02, every=True),
        *(Bound(f"{arm}_test_loss", at_least=0.1, every=True) for arm in ARMS if arm != "reslink"),
    ),
    measure=measure,
    recipes=recipes,
    also=also,
    figure=figure,
    reported={"reslink_train_loss": 0, "reslink_test_loss": 0},
)
