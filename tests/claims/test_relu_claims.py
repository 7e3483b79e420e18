"""Claims on the two-layer ReLU network: what they would refute, and settings they reject."""

import dataclasses

import numpy as np
import pytest

from pipelines.claims.li_yuan import (
    one_point_convexity,
    population_gradient,
    potential_rates,
    two_phases,
)
from pipelines.claims.li_yuan._figures import height_above_chords, measure_plane
from pipelines.claims.ours import input_distributions
from pipelines.claims.ours.input_distributions import covariance_root, least_ratio
from pipelines.measurement.grid import (
    ASSUMPTION,
    Cell,
    Cells,
    Measured,
    axis_values,
    list_cells,
    split_batches,
)
from tests.claims.measured import made, measure, values_of
from tests.quoted import grades
from theory.circulant import circulant_descent, circulant_matrix
from theory.relu_population import gradient, inner_product, potential


def test_monte_carlo_tells_the_gradient_from_its_neighbours():
    rng = np.random.default_rng(0)
    W, W_star = population_gradient.random_instance(rng, 3, 0.5, "random")
    estimate = population_gradient.monte_carlo(lambda n: rng.normal(size=(n, 3)), W, W_star, 50_000)
    true = gradient(W, W_star)

    def z(G):
        return np.max(np.abs((G - estimate["gradient"]) / estimate["gradient_error"]))

    assert z(true) < 4.5
    for wrong in (gradient(W, W_star, "printed"), true / 2, true.T):
        assert z(wrong) > 6


@pytest.mark.parametrize(
    ("factor", "verdict", "printed"),
    [
        (np.pi, "holds as corrected", "the printed version has a slip: printed_factor 3.142, not"),
        (1.0, "refuted", "holds"),
        (2.0, "refuted", "the printed version has a slip: printed_factor 2, not"),
    ],
)
def test_the_factor_decides_what_becomes_of_lemma_2_1_as_printed(factor, verdict, printed):
    claim = population_gradient.CLAIM
    values = {bound.metric: [0.0] for bound in claim.decided_by} | {"printed_factor": [factor]}
    assert claim.verdict(values, "cpu") == verdict
    [lemma] = claim.printed
    assert str(lemma.judge(values)).startswith(printed)


def path(inner, g, distance, rate=1 / 8, **changed):
    curves = {"inner_product": inner, "potential": g, "distance": distance}
    curves |= {"ratio": np.pi * np.divide(inner, np.square(distance)), "start_norm": 0.1}
    point = {"descent": "true", "step": 4 * np.pi * rate, "d": 4, "steps": 3, "batches": 0}
    point |= changed
    arrays = {key: np.broadcast_to(np.asarray(c, float), 4) for key, c in curves.items()}
    return Measured(Cell(point, 0), np.arange(4), arrays, "")


def test_two_phases_in_numbers_by_hand():
    numbers = two_phases.theorem_numbers(path([-2, -1, 1, 2], [4, 2.4, 1.5, 0.05], [2, 3, 3, 1.5]))
    assert numbers["start_inner_product"] == -2
    # at rate 1/8 g must fall to 1 - 0.5/8 * 4 = 3/4 a step
    assert numbers["potential_share"] == pytest.approx(1.5 / 2.4 / 0.75)
    # positive at 2, where g <= 1.97 too
    assert numbers["first_phase_share"] == pytest.approx(16 * 2 / 8)
    assert numbers["distance_growth"] == 0.5
    assert numbers["second_phase_ratio"] == pytest.approx(np.pi * 2 / 1.5**2)
    assert numbers["final_distance_share"] == 0.75


@pytest.mark.parametrize(
    ("inner", "g"), [([-2, -1, -1, -1], [4, 3, 2, 1]), ([-2, -1, 1, 2], [4, 3, 2.5, 2])]
)
def test_a_first_phase_that_never_ends_refutes(inner, g):
    never = path(inner, g, [2, 2, 2, 2])
    numbers = two_phases.extra_metrics([never])
    assert numbers["first_phase_share"] == numbers["second_phase_ratio"] == np.inf
    assert numbers["sign_change_iteration"] == (np.inf if max(inner) < 0 else 2)
    values = {key: [value] for key, value in numbers.items()}
    assert two_phases.CLAIM.outcome(values, "cpu") == "broken"


@pytest.mark.parametrize(("g", "verdict"), [(3.7, "holds"), (3.8, "broken")])
def test_a_potential_that_falls_too_slowly_refutes(g, verdict):
    # at rate 1/32 it must fall to 1 - 0.5/32 * 4 = 15/16 a step; the first phase may take 2 steps
    slow = path([-2, -1, 1, 2], [4, g, 1.5, 0.05], [2, 3, 3, 0.05], rate=1 / 32)
    numbers = two_phases.extra_metrics([slow])
    assert numbers["potential_share"] == pytest.approx(g / 4 / (15 / 16))
    values = {key: [value] for key, value in numbers.items()}
    assert two_phases.CLAIM.outcome(values, "cpu") == verdict


def test_the_iteration_of_figure_8_is_not_tested_for_how_w_is_made_is_not_stated():
    claim, good = two_phases.CLAIM, {"start_inner_product": -8.8, "second_phase_ratio": 0.4}
    values = {b.metric: [good.get(b.metric, 0.01)] * 3 for b in claim.decided_by}
    values["sgd_sign_change_iteration"] = [30, 35, 35]
    assert claim.verdict(values, "cpu") == "holds"
    assert set(grades(claim, values).values()) == {"not tested"}
    assert claim.printed[1].unstated == ["how W is made"]


def test_the_turn_of_batches_is_interpolated_between_judged_iterations():
    rng, column = np.random.default_rng(3), two_phases.start(np.random.default_rng(4), 50, 4.0, 0.5)
    judged = two_phases.judged_iterations(20)
    # a trace above 0: the gradient points to the teacher from the start on
    assert two_phases.turn_of_batches(rng, column, 1e-3, 50, judged) == 0
    away = two_phases.start(np.random.default_rng(4), 200, 4.2, -0.75)
    turns = [
        two_phases.turn_of_batches(np.random.default_rng(seed), away, 7.5e-4, 300, judged)
        for seed, judged in ((0, two_phases.judged_iterations(60)), (0, np.arange(61)))
    ]
    assert turns[0] == pytest.approx(turns[1], abs=5)  # judged every fifth step, and every one
    assert 20 < turns[1] < 45
    still = two_phases.turn_of_batches(rng, away, 1e-9, 50, judged)
    assert still == np.inf


@pytest.mark.parametrize(
    ("batches", "last", "verdict"), [(3, 0.05, "holds"), (2, 3.0, "holds"), (3, 3.0, "broken")]
)
def test_as_many_batches_as_steps_must_have_converged(batches, last, verdict):
    exact = path([-2, -1, 1, 2], [4, 3.7, 1.5, 0.05], [2, 3, 3, 0.05], rate=1 / 32)
    inner, distance = [-2, -1, 1, 2], [2, 2.5, 2.8, last]
    sgd = path(inner, [4, 3, 2, 1], distance, descent="sgd", steps=3, batches=batches)
    turns = {two_phases.turn_name(trace): np.full(4, 15.0) for trace in two_phases.TRACES}
    sgd = dataclasses.replace(sgd, curves=sgd.curves | turns)
    numbers = two_phases.extra_metrics([exact, sgd])
    assert numbers["sgd_final_distance_share"] == last / 2
    assert two_phases.CLAIM.outcome({key: [v] for key, v in numbers.items()}, "cpu") == verdict


def test_batches_begin_where_the_column_says_and_lessen_the_potential():
    column = two_phases.start(np.random.default_rng(1), 50, 3.0, -0.75)
    rows = two_phases.descend(
        np.random.default_rng(2), column, 3e-3, 300, two_phases.judged_iterations(20)
    )
    exact = two_phases.descend_exactly(
        column[None],
        3e-3,
        Cells((Cell({"descent": "true", "step": 0.15, "d": 50, "steps": 20}, 0),)),
    )[1]
    assert len(rows) == 5
    for key, value in rows[0].items():
        assert value == pytest.approx(exact[key][0, 0], rel=1e-5)
    assert rows[-1]["potential"] == pytest.approx(exact["potential"][0, 20], rel=0.3)


def test_points_stand_where_they_are_meant_to():
    rng = np.random.default_rng(3)
    dense = one_point_convexity.dense_points(rng, 100, 0.01, 6)
    wide = one_point_convexity.circulant_points(rng, 4098, 0.01, 6)
    for found in (dense, wide):
        assert np.all(found["largest_norm"] <= 0.01)
        assert np.all(found["ratio"] > 0.5)
    np.testing.assert_allclose(dense["potential"][::2], 0.1, rtol=1e-6)
    np.testing.assert_allclose(dense["potential"][1::2], dense["size"][1::2] / 4, rtol=0.05)
    np.testing.assert_allclose(wide["potential"][::2], 0.1, rtol=1e-6)
    assert np.all(wide["teacher_norm"][:2] == 0)
    assert np.all(wide["teacher_norm"][2:] > 0)
    assert wide["size"][2] == pytest.approx(4 * wide["size"][0], rel=0.01)  # W* opposite to W


def test_a_teacher_that_is_a_multiple_of_the_identity_is_no_other_case():
    d, c, rng = 7, -0.3, np.random.default_rng(4)
    W = 0.2 * rng.normal(size=(d, d))
    scaled = (W - c * np.eye(d)) / (1 + c)
    ratios = [
        inner_product(V, V_star) / np.sum((V - V_star) ** 2)
        for V, V_star in ((W, c * np.eye(d)), (scaled, np.zeros((d, d))))
    ]
    assert ratios[0] == pytest.approx(ratios[1], rel=1e-10)
    g = potential(W, c * np.eye(d))
    assert g == pytest.approx((1 + c) * potential(scaled, np.zeros((d, d))), rel=1e-10)


def point(ratio, size, potential=0.1, angle=-1.0, length=-0.05):
    curves = {"ratio": ratio, "size": size, "potential": potential, "largest_norm": 0.01}
    curves |= {"angle_share": angle, "length_share": length, ASSUMPTION: potential <= 0.1}
    return made(curves)


@pytest.mark.parametrize(
    ("points", "verdict"),
    [
        ([point(0.57, 0.04)], "inconclusive"),  # too small a distance for any g to break it
        ([point(0.57, 0.04), point(0.51, 26)], "holds"),
        ([point(0.57, 0.04), point(0.51, 26), point(-0.9, 26, potential=6)], "holds"),
        ([point(0.57, 0.04), point(0.02, 26)], "broken"),
        ([point(0.51, 26), point(0.51, 26, angle=-1.31)], "broken"),
        ([point(0.51, 26), point(0.51, 26, length=-0.09)], "broken"),
    ],
)
def test_one_point_convexity_is_decided_where_it_can_fail(points, verdict):
    claim = one_point_convexity.CLAIM
    assert claim.outcome(values_of(claim, *points), "cpu") == verdict


def measured_values(claim, setting, seeds=1):
    """What a claim makes of a setting: by name one value a seed."""
    every = list_cells(axis_values(setting, claim.inner, {}), seeds)
    batches = split_batches(every, claim.batch_by, claim.batch)
    measured = [m for batch in batches for m in measure(claim, *batch.cells)]
    rows = [claim.metrics([m for m in measured if m.cell.seed == seed]) for seed in range(seeds)]
    return {key: [row[key] for row in rows] for key in rows[0]}


def rates_setting(*d, gamma=0.01):
    return potential_rates.Setting(d, (gamma,), starts=2)


def test_narrow_networks_refute_the_first_phase():
    values = measured_values(potential_rates.CLAIM, rates_setting(16, 32))
    assert values["first_phase_share"][0] > 1.5
    assert potential_rates.CLAIM.outcome(values, "cpu") == "broken"
    assert "not tested" in grades(potential_rates.CLAIM, values).values()


def test_the_first_phase_is_judged_at_the_constant_gamma_and_shown_below_it():
    claim = potential_rates.CLAIM
    values = measured_values(claim, rates_setting(100, 110, gamma=0.001))
    assert values["small_gamma_share"][0] == pytest.approx(2.07, abs=0.02)
    assert "first_phase_share" not in values
    assert claim.outcome(values, "cpu") == "inconclusive"


@pytest.mark.parametrize("teacher", [0.0, 0.05])
def test_descents_to_a_multiple_of_the_identity_are_descents_to_zero(teacher):
    d, rate, T = 6, 0.01, np.array([3, 30])
    start = -0.05 * (np.arange(d) == 0) + 0.01 * (np.arange(d) == 1) - 0.01 * (np.arange(d) == 5)
    W, W_star = circulant_matrix(start), teacher * np.eye(d)
    g = [potential(W, W_star)]
    for _ in range(30):
        W = W - rate * gradient(W, W_star, "printed")
        g.append(potential(W, W_star))
    fallen = potential_rates.potential_along_descent(start, rate, T, teacher)
    np.testing.assert_allclose(fallen, np.array(g)[[0, 3, 30]], rtol=1e-12)


def test_long_steps_go_as_far_as_many_short_ones():
    d, rate, T = 100, 1 / (36 * 100**2), np.array([200, 4000])
    start = -0.01 * (np.arange(d) == 0)
    exact = circulant_descent(start, rate, 4000, "printed")["potential"]
    fallen = potential_rates.potential_along_descent(start, rate, T)
    np.testing.assert_allclose(fallen, exact[[0, 200, 4000]], rtol=2e-3)


def test_the_worst_start_is_as_far_from_its_teacher_as_the_norms_allow():
    values = measured_values(potential_rates.CLAIM, rates_setting(100))
    rate, gamma = 1 / (36 * 100**2), 0.01
    start = -2 * gamma / (1 + gamma) * (np.arange(100) == 0)
    T = np.array([22_499])
    worst = (
        (1 + gamma) * potential_rates.potential_along_descent(start, rate, T)[-1] / (197 * gamma**2)
    )
    assert values["first_phase_share"][0] == pytest.approx(worst, rel=5e-3)
    alone = potential_rates.potential_along_descent(-gamma * (np.arange(100) == 0), rate, T)[-1] / (
        197 * gamma**2
    )
    assert alone < 0.55 * worst


def test_gradients_above_their_bounds_refute(monkeypatch):
    claim = potential_rates.CLAIM
    values = measured_values(claim, rates_setting(100, 110))
    assert claim.outcome(values, "cpu") == "holds"
    assert set(grades(claim, values).values()) == {"holds"}
    monkeypatch.setattr(
        potential_rates, "gradient_sizes", lambda d, gamma, noise=0: (4 * d * gamma, 1e3)
    )
    steep = {"gradient_share": measured_values(claim, rates_setting(100, 110))["gradient_share"]}
    assert steep["gradient_share"][0] > 1
    assert claim.outcome(values | steep, "cpu") == "broken"
    assert "not tested" in grades(claim, values | steep).values()


def test_speeds_count_until_the_ceiling():
    g = np.array([[1.0, 0.5, 0.1, 1e-9]])
    promised = np.log([2.0, 4.0, 8.0])
    speed = potential_rates.least_speed(g, promised, 0.2)
    np.testing.assert_allclose(speed, [1, np.log(10) / np.log(4), np.log(10) / np.log(4)])
    assert potential_rates.least_speed(np.array([[1, 0.6, 0.3, 0.2]]), promised, 0.1).min() < 1


def test_potentials_that_do_not_grow_refute():
    rows = [
        made({"largest_potential": g, "gaussian_potential": g}, {"d": d, "gamma": 0.01})
        for d, g in ((100, 2.0), (400, 3.0))
    ]
    slope = potential_rates.exponent(rows, "largest")["potential_exponent"]
    assert slope == pytest.approx(np.log(1.5) / np.log(4))
    bound = next(b for b in potential_rates.BOUNDS if b.metric == "potential_exponent")
    assert bound.verdict([slope]) == "broken"
    assert potential_rates.exponent(rows[:1], "largest") == {}


def test_correlated_inputs_need_their_own_formula(monkeypatch):
    claim = input_distributions.CLAIM
    setting = input_distributions.Setting((1.0, 10.0), radius=("student",), d=3, samples=20_000)
    values = measured_values(claim, setting)
    assert claim.outcome(values, "cpu") == "holds"
    assert values["proved_share"][0] == pytest.approx(1, abs=1e-4)  # at Sigma = I
    assert values["least_ratio"][0] < 0.3
    monkeypatch.setattr(
        input_distributions,
        "correlated_gradient",
        lambda W, W_star, root, scale="true": gradient(W, W_star, scale),
    )
    wrong = measured_values(claim, setting)
    assert wrong["z"][0] > 6
    assert claim.outcome(wrong, "cpu") == "broken"


@pytest.mark.parametrize("covariance", input_distributions.COVARIANCES)
@pytest.mark.parametrize("condition", [1.0, 30.0, 300.0])
def test_the_least_ratio_is_that_of_the_quadratic_form(condition, covariance):
    """2 pi E (sum_j 1[x_j > 0] <x, M_j>)^2, in the plane by quadrature over the angle."""
    root = covariance_root(np.random.default_rng(0), 2, condition, covariance)
    angles = (np.arange(400_000) + 0.5) * np.pi / 200_000
    x = np.sqrt(2) * np.stack([np.cos(angles), np.sin(angles)], axis=-1) @ root.T
    features = (x[:, :, None] * (x > 0)[:, None, :]).reshape(len(x), -1)
    form = 2 * np.pi * features.T @ features / len(x)
    assert least_ratio(root) == pytest.approx(np.linalg.eigvalsh(form)[0], rel=1e-3)
    assert np.linalg.norm(root) ** 2 == pytest.approx(2)
    assert np.linalg.cond(root) ** 2 == pytest.approx(condition)


def test_chords_show_where_a_loss_is_not_convex():
    x = np.linspace(-2, 2, 41)
    bowl, wells = x**2 + x[:, None] ** 2, (x**2 - 1) ** 2 - 1 + x[:, None] ** 2
    assert np.all(height_above_chords(bowl, x, x) <= 1e-12)
    assert height_above_chords(wells, x, x)[20, 40] < 0 < height_above_chords(-bowl, x, x)[20, 40]
    plane = measure_plane(50, np.array([0.0, 1.0]), np.array([-0.5, 0.0, 0.5]))
    np.testing.assert_allclose(plane["trace"], [[-0.5, -0.5], [0, 0], [0.5, 0.5]], atol=1e-15)
    assert plane["distance"][1, 1] == pytest.approx(1)
