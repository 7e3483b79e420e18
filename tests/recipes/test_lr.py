"""Learning-rate schedules: exact values, Keras's, range, warm-up, figure, error sentences."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from pipelines.errors import UserError
from pipelines.recipes import lr

QUARTERS = np.array([0.0, 0.25, 0.5, 0.75, 1.0])


@pytest.mark.parametrize(
    ("schedule", "shape", "expected"),
    [
        ("constant", {}, [1.0, 1.0, 1.0, 1.0, 1.0]),
        ("steps", {}, [1.0, 1.0, 0.1, 0.1, 0.1**2]),
        ("steps", {"boundaries": (0.25, 0.75), "factor": 0.5}, [1.0, 0.5, 0.5, 0.25, 0.25]),
        ("steps", {"boundaries": ()}, [1.0, 1.0, 1.0, 1.0, 1.0]),
        ("staircase", {"drops": 2, "factor": 0.5}, [1.0, 1.0, 0.5, 0.5, 0.25]),
        ("staircase", {"drops": 1.5, "factor": 0.5}, [1.0, 1.0, 1.0, 0.5, 0.5]),
        ("staircase", {"drops": 0.5, "factor": 0.5}, [1.0, 1.0, 1.0, 1.0, 1.0]),
        ("linear", {}, [1.0, 0.75, 0.5, 0.25, 0.0]),
        ("cosine", {}, [1.0, 0.8535533905932737, 0.5, 0.14644660940672627, 0.0]),
        ("exponential", {"final": 0.0625}, [1.0, 0.5, 0.25, 0.125, 0.0625]),
        ("polynomial", {}, [1.0, 0.5625, 0.25, 0.0625, 0.0]),
        ("polynomial", {"power": 1.0, "final": 0.5}, [1.0, 0.875, 0.75, 0.625, 0.5]),
        ("polynomial", {"power": 0.5}, [1.0, np.sqrt(0.75), np.sqrt(0.5), 0.5, 0.0]),
        ("cosine", {"final": 0.5}, [1.0, 0.9267766952966369, 0.75, 0.5732233047033631, 0.5]),
        ("cosine-restarts", {"cycles": 2, "stretch": 1.0}, [1.0, 0.5, 1.0, 0.5, 0.0]),
        (
            "cosine-restarts",
            {"cycles": 2, "stretch": 1.0, "damping": 0.5, "final": 0.5},
            [1.0, 0.75, 0.75, 0.625, 0.5],
        ),
        ("warmup-stable-decay", {"decay": 0.5}, [1.0, 1.0, 1.0, 0.5, 0.0]),
        ("warmup-stable-decay", {"decay": 0.25, "final": 0.5}, [1.0, 1.0, 1.0, 1.0, 0.5]),
        ("warmup-stable-decay", {"decay": 1.0}, [1.0, 0.75, 0.5, 0.25, 0.0]),
        ("one-cycle", {"rise": 0.5, "start": 0.5}, [0.5, 0.75, 1.0, 0.5, 0.0]),
        ("one-cycle", {"rise": 0.5, "start": 1.0, "final": 0.5}, [1.0, 1.0, 1.0, 0.75, 0.5]),
        ("inverse-sqrt", {"timescale": 0.25}, [1.0, 1.0, np.sqrt(0.5), np.sqrt(0.25 / 0.75), 0.5]),
    ],
)
def test_exact_values(schedule: str, shape: dict[str, Any], expected: list[float]) -> None:
    assert lr.SCHEDULES[schedule](QUARTERS, **shape).tolist() == expected


@pytest.mark.parametrize("schedule", lr.SCHEDULES)
def test_multiplier_and_table_have_their_range_and_shape(schedule: str) -> None:
    t = np.linspace(0, 1, 1001).reshape(7, 143)
    multiplier = lr.SCHEDULES[schedule](t)
    assert multiplier.shape == t.shape
    assert multiplier.dtype == np.float64
    assert multiplier.min() >= 0
    assert multiplier.max() == 1
    rates = lr.table(schedule, peak=0.5, total_steps=37, warmup=0.2)
    assert rates.shape == (37,)
    assert rates.dtype == np.float64
    assert rates.min() > 0
    assert rates.max() <= 0.5


def test_paper_run_drops_at_the_boundary_step() -> None:
    rates = lr.table("steps", peak=0.05, total_steps=64_000)
    boundary = [0, 29_999, 30_000, 49_999, 50_000, 63_999]
    expected = [0.05, 0.05, 0.05 * 0.1, 0.05 * 0.1, 0.05 * 0.1**2, 0.05 * 0.1**2]
    assert rates[boundary].tolist() == expected


def test_stairs_of_two_epochs_begin_with_their_first_step() -> None:
    # 140 epochs of 5,000 steps: a drop every 10,000 steps.
    rates = lr.table("staircase", peak=0.1, total_steps=700_000, drops=70, factor=0.94)
    found = [rates[step] for step in (0, 9_999, 10_000, 19_999, 20_000, 29_999, 699_999)]
    expected = [0.1, 0.1, 0.1 * 0.94, 0.1 * 0.94, 0.1 * 0.8836, 0.1 * 0.8836, 0.1 * 0.94**69]
    np.testing.assert_allclose(found, expected, rtol=1e-15)


@pytest.mark.parametrize("n", range(1, 100))
def test_stairs_and_decimal_boundaries_are_exact(n: int) -> None:
    rates = lr.table("staircase", 1.0, 3 * n, drops=n, factor=0.5)
    assert rates.tolist() == [0.5**stair for stair in range(n) for _ in range(3)]
    rates = lr.table("steps", 1.0, 100, boundaries=(n / 100,), factor=0.5)
    assert rates.tolist() == [1.0] * n + [0.5] * (100 - n)


def test_stairs_of_whole_steps_end_at_them_whatever_the_length() -> None:
    steps, stair = 7_020, 21
    rates = lr.table("staircase", 1.0, steps, drops=steps / stair, factor=0.5)
    assert (np.flatnonzero(np.diff(rates)) + 1).tolist() == list(range(stair, steps, stair))


def test_warmup_multiplies_on_top() -> None:
    assert lr.table("constant", 1.0, 8, warmup=0.5).tolist() == [0.25, 0.5, 0.75, 1, 1, 1, 1, 1]
    assert lr.table("linear", 1.0, 4, warmup=0.5).tolist() == [0.5, 0.75, 0.5, 0.25]
    assert lr.table("constant", 2.0, 3, warmup=0.1).tolist() == [2.0, 2.0, 2.0]  # under half a step


def test_by_hand_a_warmup_may_hold_one_share_of_the_rate() -> None:
    held = lr.table("linear", 1.0, 4, warmup=0.5, warmup_level=0.25)
    assert held.tolist() == [0.25, 0.1875, 0.5, 0.25]
    assert lr.table("constant", 2.0, 3, warmup_level=0.5).tolist() == [2.0, 2.0, 2.0]


def test_warmup_moves_no_boundary() -> None:
    plain = lr.table("steps", 0.05, 64_000)
    warm = lr.table("steps", 0.05, 64_000, warmup=0.01)
    assert np.array_equal(warm[640:], plain[640:])
    assert warm[0] == 0.05 * (1 / 640)
    assert warm[639] == 0.05


def test_cycles_grow_and_shrink_by_their_ratios() -> None:
    # Cycles of 4, 12 and 36 steps: half way down each is half its peak; peaks 1, 0.5 and 0.25.
    rates = lr.table("cosine-restarts", 1.0, 52, cycles=3, stretch=3.0, damping=0.5)
    found = rates[[0, 2, 4, 10, 16, 34]]
    np.testing.assert_allclose(found, [1.0, 0.5, 0.5, 0.25, 0.25, 0.125], rtol=1e-12)
    assert (np.flatnonzero(np.diff(rates) > 0) + 1).tolist() == [4, 16]


@pytest.mark.parametrize("stretch", [0.3, 0.7, 1.0, 1.1, 1.7, 2.0, 3.0])
@pytest.mark.parametrize("cycles", [1, 2, 3, 5, 9])
def test_restarts_never_reach_zero(cycles: int, stretch: float) -> None:
    for total_steps in (97, 210, 1000):
        rates = lr.table("cosine-restarts", 1.0, total_steps, cycles=cycles, stretch=stretch)
        assert rates.min() > 0
        assert np.count_nonzero(np.diff(rates) > 0) <= cycles - 1


def test_one_cycle_rises_to_its_peak_and_falls_to_its_end() -> None:
    rates = lr.table("one-cycle", 2.0, 100, rise=0.3, start=0.1, final=0.01)
    assert rates[0] == pytest.approx(0.2)
    assert rates[30] == 2.0
    assert (np.diff(rates[:31]) > 0).all()
    assert (np.diff(rates[30:]) < 0).all()
    assert lr.SCHEDULES["one-cycle"](1.0, final=0.01) == 0.01


def test_inverse_sqrt_with_its_warmup_is_that_of_the_transformer() -> None:
    # Vaswani et al. 2017, equation 3: min(s^-0.5, s w^-1.5) for steps s = 1, 2, ..., peak 1.
    w, s = 40, np.arange(1, 401)
    theirs = np.sqrt(w) * np.minimum(s**-0.5, s * w**-1.5)
    rates = lr.table("inverse-sqrt", 1.0, 400, warmup=w / 400, timescale=w / 400)
    np.testing.assert_allclose(rates[:w], theirs[:w], rtol=1e-12)
    np.testing.assert_allclose(rates[w:], theirs[w - 1 : -1], rtol=1e-12)


PEAK = 0.1
CYCLES = {"cycles": 3, "stretch": 2.0, "damping": 0.5}
EQUAL = {"cycles": 7, "stretch": 1.0, "damping": 0.5, "final": 0.05}
KERAS: dict[str, tuple[str, dict[str, Any], str, tuple[Any, ...]]] = {
    "exponential": ("exponential", {"final": 0.01}, "ExponentialDecay", (224, 0.01)),
    "staircase": ("staircase", {"drops": 14.0, "factor": 0.7}, "ExponentialDecay", (16, 0.7, True)),
    "linear": ("linear", {}, "PolynomialDecay", (224, 0.0)),
    "polynomial": ("polynomial", {"power": 3.0, "final": 0.05}, "PolynomialDecay", (224, 5e-3, 3)),
    "cosine": ("cosine", {"final": 0.05}, "CosineDecay", (224, 0.05)),
    "cosine to 0": ("cosine", {}, "CosineDecay", (224,)),
    "equal cycles": ("cosine-restarts", EQUAL, "CosineDecayRestarts", (32, 1.0, 0.5, 0.05)),
    "growing cycles": ("cosine-restarts", CYCLES, "CosineDecayRestarts", (32, 2.0, 0.5)),
}


@pytest.mark.parametrize("case", KERAS)
def test_every_step_is_that_of_keras(case: str) -> None:
    from keras.optimizers import schedules

    schedule, shape, theirs, arguments = KERAS[case]
    keras_schedule = getattr(schedules, theirs)(PEAK, *arguments)
    expected = [float(keras_schedule(step)) for step in range(224)]  # computed in float32
    np.testing.assert_allclose(
        lr.table(schedule, PEAK, 224, **shape), expected, rtol=1e-6, atol=1e-7 * PEAK
    )


def test_steps_are_keras_s_one_step_earlier() -> None:
    from keras.optimizers.schedules import PiecewiseConstantDecay

    theirs = PiecewiseConstantDecay([47, 95], [0.1, 0.01, 0.001])  # whose boundary is the old rate
    expected = [float(theirs(step)) for step in range(128)]
    rates = lr.table("steps", 0.1, 128, boundaries=(48 / 128, 96 / 128), factor=0.1)
    np.testing.assert_allclose(rates, expected, rtol=1e-6)


def test_warmup_is_keras_s() -> None:
    # Ours is at the peak in the last of 16 steps, Keras's after its last; alpha = 1: no decay.
    from keras.optimizers.schedules import CosineDecay

    theirs = CosineDecay(PEAK / 16, 128, alpha=1.0, warmup_target=PEAK, warmup_steps=15)
    expected = [float(theirs(step)) for step in range(128)]
    np.testing.assert_allclose(lr.table("constant", PEAK, 128, warmup=1 / 8), expected, rtol=1e-6)


def test_figure_shows_the_table_on_a_log_axis() -> None:
    rates = lr.table("cosine", 0.1, 20)
    axes = lr.figure(rates).axes[0]
    assert np.array_equal(axes.lines[0].get_ydata(), rates)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step", "learning rate")
    assert axes.get_yscale() == "log"


@pytest.mark.parametrize("rates", [[], [[0.1]], [0.1, 0.0], [float("nan")]])
def test_figure_rejects_what_is_no_table(rates: list[Any]) -> None:
    with pytest.raises(UserError, match="non-empty vector of rates > 0"):
        lr.figure(rates)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"schedule": "cosin"}, r"'cosin'. Did you mean cosine\? All: python -m pipelines list$"),
        ({"schedule": "steps", "final": 0.1}, r"'final'.*Choices: boundaries, factor"),
        ({"factor": 0.1}, r"'factor'.*Choices: none"),
        ({"peak": 0.0}, r"finite rate > 0. Received: peak=0.0"),
        ({"peak": float("nan")}, r"peak=nan"),
        ({"peak": float("inf")}, r"peak=inf"),
        ({"total_steps": 0}, r"integer > 0. Received: total_steps=0"),
        ({"total_steps": 10.0}, r"total_steps=10.0"),
        ({"warmup": 1.0}, r"0 <= warmup < 1. Received: warmup=1.0"),
        ({"warmup": -0.1}, r"warmup=-0.1"),
        ({"warmup": float("nan")}, r"warmup=nan"),
        ({"schedule": "steps", "boundaries": (0.8, 0.4)}, r"increasing fractions"),
        ({"schedule": "steps", "boundaries": (30_000, 50_000)}, r"Divide steps by the total"),
        ({"schedule": "steps", "boundaries": 0.5}, r"boundaries=0.5"),
        ({"schedule": "steps", "factor": 1.5}, r"0 < factor <= 1. Received: factor=1.5"),
        ({"schedule": "staircase", "factor": 0.0}, r"0 < factor <= 1. Received: factor=0.0"),
        ({"schedule": "staircase", "drops": 0}, r"drops must be finite and > 0. Received: drops=0"),
        ({"schedule": "staircase", "drops": float("inf")}, r"Received: drops=inf"),
        ({"schedule": "exponential", "final": 0.0}, r"0 < final <= 1. Received: final=0.0"),
        ({"schedule": "polynomial", "power": 0.0}, r"0.1 <= power <= 10. Received: power=0.0"),
        ({"schedule": "polynomial", "final": -0.1}, r"0 <= final <= 1. Received: final=-0.1"),
        ({"schedule": "cosine", "final": float("nan")}, r"Received: final=nan. Set --final"),
        ({"schedule": "cosine-restarts", "cycles": 0}, r"1 <= cycles <= 100. Received: cycles=0"),
        ({"schedule": "cosine-restarts", "cycles": 2.5}, r"integer.*=2.5. Set --cycles a"),
        ({"schedule": "cosine-restarts", "stretch": 0}, r"0.1 <= stretch <= 10"),
        ({"schedule": "cosine-restarts", "damping": 0.0}, r"0 < damping <= 1"),
        ({"schedule": "cosine-restarts", "final": 2.0}, r"0 <= final <= 1"),
        ({"schedule": "warmup-stable-decay", "decay": 0.0}, r"0 < decay <= 1"),
        ({"schedule": "warmup-stable-decay", "final": 1.5}, r"0 <= final <= 1"),
        ({"schedule": "one-cycle", "rise": 0.0}, r"0 < rise <= 1. .*=0.0. Set --rise a"),
        ({"schedule": "one-cycle", "start": 0.0}, r"0 < start <= 1. Received: start=0.0"),
        ({"schedule": "one-cycle", "final": -1.0}, r"0 <= final <= 1"),
        ({"schedule": "inverse-sqrt", "timescale": 0}, r"0 < timescale <= 1"),
    ],
)
def test_error_sentences(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        lr.table(**{"schedule": "constant", "peak": 0.1, "total_steps": 10} | arguments)


def test_import_is_light() -> None:
    program = (
        "import sys, pipelines.recipes.lr;"
        "sys.exit(bool({'keras', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
