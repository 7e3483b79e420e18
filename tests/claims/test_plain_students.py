"""Students that stop at minima: the Hessian by hand, the descent, and what would refute."""

import numpy as np
import pytest

from pipelines.claims.li_yuan import plain_students_stop_at_minima as students
from pipelines.measurement.grid import Cell
from pipelines.measurement.quotation import NOT_TESTED
from pipelines.measurement.verdict import HOLDS
from tests.claims.measured import made, values_of
from theory.relu_population import gradient, loss


def point(**changed: object) -> dict[str, object]:
    return {"student": "plain", "norm": 0.6, "d": 12, "iterations": 800} | changed


def test_one_step_from_rest_is_along_the_gradient() -> None:
    rng = np.random.default_rng(0)
    W, target = 0.3 * rng.normal(size=(2, 5, 5))
    after, rows = students.descend(W, target, [0, 1])
    np.testing.assert_allclose(after, W - gradient(W, target) / 5)
    assert rows[0][0] == pytest.approx(float(loss(W, target)))
    assert rows[1][2] == pytest.approx(np.linalg.norm(after - target))


def test_both_students_of_a_seed_start_at_the_same_weights() -> None:
    plain, identity = (
        students.measure_cell(Cell(point(student=student), 3), [0, 1])
        for student in ("plain", "identity")
    )
    assert plain["distance"][0] == pytest.approx(identity["distance"][0])
    assert plain["loss"][0] != pytest.approx(identity["loss"][0], rel=0.1)


END = {"loss": 0.05, "gradient_norm": 1e-14, "distance": 8.0, "least_curvature": 0.08}
GOOD = {"loss": 0.0, "gradient_norm": 1e-14, "distance": 0.0, "least_curvature": 0.1}


def judge(identity: dict[str, float], plain: dict[str, float]) -> tuple[str, str]:
    measured = [
        made({key: [1.0, value] for key, value in end.items()}, point(student=student))
        for student, end in (("identity", GOOD | identity), ("plain", END | plain))
    ]
    values = values_of(students.CLAIM, *measured)
    [(_, grade)] = students.CLAIM.grades(values, "cpu")
    return students.CLAIM.verdict(values, "cpu"), grade.grade


@pytest.mark.parametrize(
    ("identity", "plain", "verdict", "grade"),
    [
        ({}, {}, "holds", HOLDS),
        ({"loss": 1e-3}, {}, "refuted", HOLDS),
        ({}, {"loss": 1e-12}, "refuted", NOT_TESTED),  # it has learned its teacher
        ({}, {"least_curvature": -0.1}, "refuted", NOT_TESTED),  # a saddle
        ({}, {"gradient_norm": 1e-3}, "refuted", NOT_TESTED),  # it moves still
    ],
)
def test_what_decides(
    identity: dict[str, float], plain: dict[str, float], verdict: str, grade: str
) -> None:
    assert judge(identity, plain) == (verdict, grade)
