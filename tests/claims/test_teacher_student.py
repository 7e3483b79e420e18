"""The students of a fixed teacher, the teacher of three blocks, and what refutes the claim."""

import dataclasses

import keras
import numpy as np
import pytest

import keras_models
from pipelines.claims.li_yuan import teacher_student
from pipelines.data import datasets, generated
from pipelines.measurement.grid import Cell, Measured

SETTING = teacher_student.CLAIM.scales["smoke"]


def test_one_teacher_and_its_samples_serve_all_seeds() -> None:
    first, other = (teacher_student.recipes(SETTING, seed) for seed in (0, 7))
    assert list(first) == list(teacher_student.ARMS)
    for arm, recipe in first.items():
        assert dataclasses.replace(other[arm], seed=recipe.seed) == recipe
        assert (recipe.seed, other[arm].seed) == (100, 107)  # none below 100: they were looked at
    assert len({recipe.fingerprint for recipe in [*first.values(), *other.values()]}) == 10
    same = [first[arm].data_args for arm in ("reslink", "vanilla", "three_block")]
    assert same[0] == same[1] == same[2]


def test_at_paper_scale_the_students_take_200_epochs() -> None:
    setting = teacher_student.CLAIM.scales["paper"]
    assert setting.steps == 200 * teacher_student.validations(setting)[0]
    assert (setting.learning_rate, setting.batch_size, setting.hidden) == (1e-3, 200, 500)


def test_a_teacher_of_three_blocks_is_a_network_of_three_blocks() -> None:
    arguments = {"hidden": 6, "noise": 0.0, "train_size": 20_000, "val_size": 64}
    splits = datasets.load("three-block-teacher", None, arguments)
    assert splits.train.y.std() == pytest.approx(generated.DEVIATION, rel=0.05)
    keras.utils.set_random_seed(0)
    model = keras_models.build("two_layer", (8,), 1, variant="three-block", hidden=6)
    rng = np.random.default_rng([0, 0])  # the teacher's random stream
    x = rng.standard_normal((generated.REFERENCE, 8))
    for block, width in enumerate((8, 6, 6), 1):
        W = rng.standard_normal((width, 6))
        z = x @ W
        model.get_layer(f"block{block}_linear").set_weights([W])
        moments = [z.mean(axis=0), z.var(axis=0)]
        model.get_layer(f"block{block}_norm").set_weights([np.ones(6), np.zeros(6), *moments])
        x = np.maximum((z - moments[0]) / np.sqrt(moments[1]), 0)
    outputs = model.predict(splits.val.x, verbose=0) * generated.DEVIATION / x.sum(axis=1).std()
    np.testing.assert_allclose(splits.val.y, outputs, rtol=1e-3, atol=1e-3)


MEASURED = {
    "reslink_end_loss": 1e-4,
    "reslink_end_distance_ratio": 0.005,
    "vanilla_test_loss": 3.3,
    "vanilla_own_test_loss": 0.8,
    "three_block_test_loss": 8.0,
    "three_block_own_test_loss": 8.0,
    "three_block_fitted_share": 0.2,
    "three_block_test_share": 2.4,
}


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "holds"),
        ({"reslink_end_loss": 0.01}, "broken"),
        ({"reslink_end_distance_ratio": 0.5}, "broken"),
        ({"vanilla_own_test_loss": 1e-4}, "broken"),
        ({"three_block_own_test_loss": 1e-4}, "broken"),
        ({"three_block_test_share": 3.24 / 3.31}, "broken"),  # tests better than vanilla
        ({"three_block_fitted_share": 1.1}, "broken"),  # fits worse
    ],
)
def test_each_rule_can_refute(changed: dict[str, float], verdict: str) -> None:
    values = {key: [value, value] for key, value in (MEASURED | changed).items()}
    assert teacher_student.CLAIM.outcome(values, "paper") == verdict
    assert teacher_student.CLAIM.outcome(values, "cpu") == "not judged (smaller run)"
    order_is_broken = any(key.endswith("_share") for key in changed)
    [order] = teacher_student.CLAIM.printed
    assert order.judge(values).grade == ("not tested" if order_is_broken else "holds")


def measured(**losses: float) -> Measured:
    arms = {
        f"{arm}_{name}": np.full(2, 3.0)
        for arm in teacher_student.ARMS
        for name in ("train_loss", "val_loss", "fitted_loss", "test_loss")
    }
    norms = {
        f"{arm}_{name}": np.full(2, 1.0)
        for arm in ("reslink", "vanilla", "vanilla_own", "population")
        for name in (*teacher_student.OF_MATRIX, "loss")
    }
    curves = arms | norms | {"reslink_distance_ratio": np.full(2, 0.1)}
    curves |= {key: np.full(2, value) for key, value in losses.items()}
    return Measured(Cell(dataclasses.asdict(SETTING), 0), np.array([10, 20]), curves, "")


def test_shares_are_the_three_blocks_losses_over_vanillas() -> None:
    metrics = teacher_student.extra_metrics(
        [measured(three_block_fitted_loss=1.5, three_block_test_loss=6.0)]
    )
    assert (metrics["three_block_fitted_share"], metrics["three_block_test_share"]) == (0.5, 2)
    assert (
        teacher_student.extra_metrics([measured(reslink_fitted_loss=9.0)])["reslink_end_loss"] == 9
    )


def test_students_that_diverged_show_no_order() -> None:
    learned = {f"reslink_{name}_loss": 1e-4 for name in teacher_student.ENDS}
    learned |= {"reslink_distance_ratio": 0.005, "three_block_fitted_loss": 1.0}
    learned |= {"three_block_test_loss": 4.0}

    def verdict(**losses: float) -> str:
        metrics = teacher_student.extra_metrics([measured(**learned | losses)])
        return teacher_student.CLAIM.outcome({k: [v, v] for k, v in metrics.items()}, "paper")

    assert verdict() == "holds"
    assert verdict(vanilla_test_loss=np.inf, three_block_test_loss=np.inf) == "inconclusive"
    assert verdict(reslink_test_loss=np.inf) == "broken"


def test_norms_are_of_w_beside_the_identity() -> None:
    keras.utils.set_random_seed(0)
    splits = datasets.load("relu-teacher", None, {"noise": 0.0, "train_size": 64})
    for variant in ("reslink", "vanilla"):
        model = keras_models.build(
            "two_layer", (8,), 1, variant=variant, start_frobenius=1.4, start_norm=0.6
        )
        norms = splits.task.of_model(model)  # type: ignore[misc]
        assert norms["frobenius_norm"] == pytest.approx(1.4, rel=1e-5)
        assert norms["spectral_norm"] == pytest.approx(0.6, rel=1e-5)
