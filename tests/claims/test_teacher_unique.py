"""The teacher near the identity: its columns switched, and what would refute that it is unique."""

import numpy as np
import pytest

from pipelines.claims.li_yuan import teacher_is_unique_near_identity as unique
from tests.claims.measured import made, values_of
from tests.quoted import grades
from theory.relu_population import loss


def test_two_switched_columns_by_hand() -> None:
    _, teacher, switched, _ = unique.instance(np.random.default_rng(0), 2, 0.5, starts=3)
    np.testing.assert_allclose(np.eye(2) + switched, (np.eye(2) + teacher)[..., ::-1])
    swap = np.array([[-1.0, 1.0], [1.0, -1.0]])  # of the two columns of I
    assert loss(swap, np.zeros((2, 2))) == pytest.approx(0, abs=1e-15)
    assert unique.spectral_norms(swap) == unique.frobenius_norms(swap) == pytest.approx(2)
    assert unique.mismatch(swap, np.zeros((2, 2))) == 0


def test_a_circle_of_three_columns_is_the_nearest_permutation() -> None:
    shifts = [np.roll(np.eye(d), 1, axis=0) - np.eye(d) for d in range(2, 12)]
    norms = [float(unique.spectral_norms(shift)) for shift in shifts]
    assert min(norms) == norms[1] == pytest.approx(unique.LEAST_PERMUTED)


def test_mismatch_is_the_least_over_all_orders() -> None:
    from itertools import permutations

    W, W_star = np.random.default_rng(1).normal(size=(2, 5, 4, 4))
    orders = [list(order) for order in permutations(range(4))]
    B, B_star = np.eye(4) + W, np.eye(4) + W_star
    least = np.min([np.linalg.norm(B[..., order] - B_star, axis=(1, 2)) for order in orders], 0)
    np.testing.assert_allclose(unique.mismatch(W, W_star), least)


END = {  # one descent from inside the ball to the teacher, one from outside to another order
    "loss": [1e-16, 1e-16],
    "gradient_norm": [1e-9, 1e-9],
    "distance": [1e-9, 2.0],
    "distance_ratio": [1e-9, 0.9],
    "mismatch": [1e-9, 1e-9],
    "start_norm": [0.5, 3.0],
    "end_norm": [0.5, 1.8],
    "teacher_norm": [0.5, 0.5],
    "switched_loss": [1e-16, 1e-16],
    "switched_distance": [2.0, 1.9],
    "switched_norm": [2.0, 2.0],
    "column_loss": [0.2, 0.1],
    "assumption_holds": [1.0, 0.0],
}


def judge(**changed: list[float]) -> tuple[str, dict[str, str]]:
    values = values_of(unique.CLAIM, made(END | changed))
    return unique.CLAIM.outcome(values, "cpu"), grades(unique.CLAIM, values)


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "holds"),
        ({"distance_ratio": [0.9, 0.9]}, "broken"),  # from inside not to the teacher
        ({"mismatch": [1e-9, 1.0]}, "broken"),  # loss 0 at no order of the columns
        ({"end_norm": [0.5, 0.6]}, "broken"),  # another minimum in the ball
        ({"switched_norm": [0.6, 2.0]}, "broken"),
        ({"switched_loss": [1e-16, 1e-3]}, "broken"),
    ],
)
def test_each_rule_can_refute(changed: dict[str, list[float]], verdict: str) -> None:
    assert judge(**changed)[0] == verdict


def test_the_abstract_is_read_near_the_identity_and_section_1_holds() -> None:
    assert judge()[1] == {"LY section 1": "holds", "LY abstract": "holds"}
    assert judge(column_loss=[1e-9, 0.1])[1]["LY section 1"] == "not tested"
    near = judge(end_norm=[0.5, 0.6])[1]  # another minimum near the identity
    assert near == {"LY section 1": "holds", "LY abstract": "not tested"}


def test_switched_columns_of_a_positive_loss_contradict_the_corrected_claim() -> None:
    outcome, quoted = judge(switched_loss=[1e-3, 1e-3])
    assert (outcome, quoted["LY abstract"]) == ("broken", "holds")


def test_columns_of_w_and_of_i_plus_w_are_switched_as_they_are_called() -> None:
    rng = np.random.default_rng(0)
    _, teacher, switched, of_W = unique.instance(rng, 5, 0.6, 3)
    np.testing.assert_allclose(loss(switched, teacher), 0, atol=1e-14)
    assert np.all(loss(of_W, teacher) > 1e-6)
    for W, other in zip(teacher, of_W, strict=True):  # the same columns in another order
        np.testing.assert_array_equal(np.sort(W, axis=1), np.sort(other, axis=1))


def test_a_loss_of_zero_has_the_columns_of_the_teacher_and_their_signs() -> None:
    teacher = 0.5 * np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))[0]
    columns = np.eye(3) + teacher
    turned, moved = columns * [1, -1, 1], columns * [1, 1, 1.01]
    assert loss(columns[:, [2, 0, 1]] - np.eye(3), teacher) == pytest.approx(0, abs=1e-14)
    for other in (turned, moved):
        assert loss(other - np.eye(3), teacher) > 1e-6
    dependent = np.array([[1.0, 0, -1], [0, 1, -1], [0, 0, 0]])  # sum of columns 0: signs are lost
    assert loss(-dependent - np.eye(3), dependent - np.eye(3)) == pytest.approx(0, abs=1e-14)


def test_descent_beyond_the_ball_is_counted_by_its_kind() -> None:
    for loss_at_end, slope, stalled, unfinished in (
        (0.02, 1e-9, 50, 0),
        (0.02, 1e-3, 0, 50),
        (1e-6, 1e-9, 0, 50),
    ):
        changed = {"loss": [1e-16, loss_at_end], "gradient_norm": [slope, slope]}
        metrics = unique.extra_metrics([made(END | changed)])
        assert (metrics["stalled_pct"], metrics["unfinished_pct"]) == (stalled, unfinished)
        assert metrics["permuted_pct"] == 0
