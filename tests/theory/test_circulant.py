"""Circulant weights: the recursion in one column is dense descent, and starts as it must."""

import numpy as np
import pytest

from theory.circulant import (
    circulant_descent,
    circulant_matrix,
    circulant_measures,
    circulant_path,
    circulant_start,
    circulant_terms,
    versine,
)
from theory.relu_population import gradient, inner_product, inner_terms, loss, potential


@pytest.mark.parametrize("d", [3, 60, 61])
@pytest.mark.parametrize("scale", ["true", "printed"])
def test_descent_of_the_column_is_dense_descent(d, scale):
    column = 0.2 * np.random.default_rng(d).normal(size=d)
    curves = circulant_descent(column, 0.1 / d, 40, scale)
    W, zero = circulant_matrix(column), np.zeros((d, d))
    for k, c in enumerate(circulant_path(column, 0.1 / d, 40, scale)):
        np.testing.assert_allclose(c, W[:, 0], atol=1e-12)
        dense = {
            "inner_product": inner_product(W, zero, scale),
            "potential": potential(W, zero),
            "loss": loss(W, zero),
            "distance": np.linalg.norm(W),
            "trace": np.trace(W),
            "angle_terms": inner_terms(W, zero).angles,
            "length_terms": inner_terms(W, zero).lengths,
        }
        for key, value in dense.items():
            assert curves[key][k] == pytest.approx(value, rel=1e-9, abs=1e-9)
        W = W - 0.1 / d * gradient(W, zero, scale)


def test_matrix_by_hand():
    expected = [[1, 3, 2], [2, 1, 3], [3, 2, 1]]
    np.testing.assert_array_equal(circulant_matrix([1, 2, 3]), expected)


@pytest.mark.parametrize("d", [3, 8, 201])
@pytest.mark.parametrize("rng", [None, np.random.default_rng(0)])
def test_start_is_skew_and_flat_but_for_its_trace(d, rng):
    W = circulant_matrix(circulant_start(d, 1.5, -1.2, rng))
    S = W - np.trace(W) / d * np.eye(d)
    assert np.linalg.norm(W) == pytest.approx(1.5)
    assert np.trace(W) == pytest.approx(-1.2)
    np.testing.assert_allclose(S, -S.T, atol=1e-14)
    np.testing.assert_allclose(S.sum(axis=1), 0, atol=1e-13)
    s = np.linalg.svd(S, compute_uv=False)[: 2 * ((d - 1) // 2)]
    np.testing.assert_allclose(s, s[0], rtol=1e-12)


@pytest.mark.parametrize(("scale", "turn"), [("true", 39), ("printed", 12)])
def test_the_inner_product_turns_positive_as_in_figure_8(scale, turn):
    curves = circulant_descent(circulant_start(200, 4.2, -13.23), 7.5e-4, 300, scale)
    inner, g, distance = (curves[key] for key in ("inner_product", "potential", "distance"))
    assert inner[0] * (1 / np.pi if scale == "printed" else 1) == pytest.approx(-4.2223, abs=1e-4)
    assert int(np.argmax(inner > 0)) == turn == int(np.argmax(distance))
    assert np.all(inner[turn:] > 0)
    assert np.all(np.diff(g[: turn + 1]) < 0)


def test_longer_steps_follow_the_same_flow():
    column = circulant_start(64, 3.0, -6.75)
    short = circulant_descent(column, 2e-3, 3000)
    rates = np.append(np.full(200, 2e-3), np.full(280, 2e-2))
    long = circulant_descent(column, rates, 480)
    for key in ("distance", "loss", "inner_product"):
        assert long[key][-1] == pytest.approx(short[key][-1], rel=0.02)
    assert long["distance"][-1] < 2 < long["distance"][0]


def test_nothing_cancels_as_weights_vanish():
    column = circulant_start(500, 3.0, 0.0)
    for size, rel in ((1e-4, 1e-3), (1e-7, 1e-6)):
        found = circulant_measures(size * column)
        assert found["distance"] == pytest.approx(3 * size, rel=1e-12)
        # to second order, skew with Wu = 0: 2 pi L = (pi/2 - 1) ||W||_F^2, and <-grad, -W> = 2 L
        assert 2 * found["loss"] == pytest.approx((0.5 - 1 / np.pi) * 9 * size**2, rel=rel)
        assert found["inner_product"] == pytest.approx(2 * found["loss"], rel=rel)


@pytest.mark.parametrize("scale", ["true", "printed"])
@pytest.mark.parametrize("d", [3, 8, 41])
def test_terms_for_a_circulant_teacher_are_the_dense_ones(d, scale):
    column, teacher = np.random.default_rng(d).normal(size=(2, 3, d)) * 0.3 / np.sqrt(d)
    W, W_star = circulant_matrix(column), circulant_matrix(teacher)
    terms, dense = circulant_terms(column, teacher, scale), inner_terms(W, W_star)
    for key, value in {
        "inner_product": inner_product(W, W_star, scale),
        "angle_terms": dense.angles,
        "length_terms": dense.lengths,
        "potential": potential(W, W_star),
        "distance": np.linalg.norm(W - W_star, axis=(1, 2)),
    }.items():
        np.testing.assert_allclose(terms[key], value, rtol=1e-10, atol=1e-13)
    at_zero, measures = (
        circulant_terms(column, np.zeros(d), scale),
        circulant_measures(column, scale),
    )
    for key in at_zero:
        np.testing.assert_allclose(at_zero[key], measures[key], rtol=1e-10, atol=1e-13)


def test_versine_is_one_minus_the_cosine_of_the_arcsine():
    x = np.array([0, 1e-9, 0.6, -0.8, 1, -1])
    np.testing.assert_allclose(versine(x), [0, 5e-19, 0.2, 0.4, 1, 1], rtol=1e-15)


def test_leading_axes_broadcast():
    columns = np.random.default_rng(1).normal(size=(3, 1, 10)) / 10
    curves = circulant_descent(columns, [[0.01], [0.02]], 5)
    assert curves["loss"].shape == (3, 2, 6)
    one = circulant_descent(columns[2, 0], np.full(5, 0.02), 5)
    for key, curve in one.items():
        np.testing.assert_allclose(curves[key][2, 1], curve, rtol=1e-12)
    assert circulant_measures(columns)["loss"].shape == (3, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.1, 0.2], 0.1, 5), r"\[\.\.\., d\] with d >= 3\. Received: shape \(2,\)"),
        (([0.1, np.nan, 0], 0.1, 5), "column must be finite"),
        (([-1, 0, 0], 0.1, 5), r"Columns of I \+ W must not be 0.*-e_0\. Move"),
        (([0.1, 0, 0], 0.1, -1), "steps must be >= 0 .* Received: steps=-1, least rate 0.1"),
        (([0.1, 0, 0], 0.0, 1), "rates finite and > 0. Received: steps=1, least rate 0"),
        (([0.1, 0, 0], [0.1, 0.2], 3), r"a number or \[\.\.\., steps\]\. Received: shape \(2,\)"),
        (([0.1, 0, 0], 0.1, 3, "pi"), r"'true' or 'printed'\. Received: scale='pi'"),
    ],
)
def test_rejections_say_rule_received_and_remedy(arguments, message):
    with pytest.raises(ValueError, match=message):
        circulant_descent(*arguments)


@pytest.mark.parametrize("bad", [(2, 1, 0), (10, 1, 4), (10, 0, 0), (10, np.nan, 0), (10, 1, 3.3)])
def test_impossible_starts_are_rejected(bad):
    with pytest.raises(ValueError, match=rf"d >= 3 and .* Received: d={bad[0]}, frob.* Choose a"):
        circulant_start(*bad)
