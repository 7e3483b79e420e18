"""Settings that no claim on arrays could have are refused in one sentence."""

from typing import Any

import pytest

from pipelines.errors import UserError
from pipelines.measurement import claim_catalog

REJECTED: dict[str, list[tuple[dict[str, Any], str]]] = {  # by claim: settings, what is said
    "deeper-landscapes": [
        ({"target": ("odd",)}, "Choices: positive, random, turned"),
        ({"covariance": ("odd",)}, "Choices: identity, random"),
        ({"l": (1, 4)}, r"l must have 2 and more. Received: 1, 4"),
        ({"d": (1,)}, "d must be .* >= 2"),
    ],
    "digit-pairs": [
        ({"pair": ("0-1", "3-3")}, r"pair of digits must be .* Received: '3-3'\. .* Choices: 0-1"),
        ({"pair": ("9-4",)}, "Received: '9-4'"),
        (
            {"norm": -0.1},
            r"norm must be .* finite numbers >= 0\. Received: \(-0\.1,\)\. Set --norm",
        ),
        ({"rate": float("inf")}, r"rate must be .* finite numbers >= 0\. Received: \(inf,\)"),
        ({"data": "minst"}, r"data set of digits .*Received: 'minst'\. Did you mean mnist"),
        ({"steps": 0}, r"steps must be >= 1\. Received: steps=0\. Set --steps"),
        ({"batch_size": 0}, "batch_size must be >= 1"),
    ],
    "input-distributions": [
        ({"condition": (0.5,)}, "condition must be .* >= 1"),
        ({"radius": ("cube",)}, "Choices: gaussian, sphere, student"),
        ({"covariance": ("all",)}, "Choices: aligned, random"),
    ],
    "matrix-lemmas": [({"q": (0,)}, "q must be")],
    "no-spurious-optima-beyond-norm-one": [
        ({"frames": ("all",)}, "Choices: identity, random"),
        ({"d": (1,)}, "d must be .* >= 2"),
        ({"l": (1,)}, "l must be .* >= 2"),
        ({"instances": 0}, "instances must be >= 1"),
    ],
    "nonlinear-critical-points": [
        ({"tau": (1.0,)}, r"tau < 1\. Received: tau=1"),
        ({"d": (0,)}, "d must be"),
        ({"d": (8,), "inputs": 8}, "inputs=8, d up to 8"),
    ],
    "one-point-convexity": [
        ({"d": (2,)}, "d must be .* >= 3"),
        ({"norm": (0.0, 0.1)}, "norm must be .* >= 1e-06. Received"),
        ({"points": 0}, "points must be >= 1"),
    ],
    "phase-recursions": [
        ({"d": (4,)}, "d must be .* >= 8"),
        ({"steps": 0}, "steps must be >= 1"),
        ({"second_steps": 1}, "second_steps must be .* >= 2"),
        ({"second_steps": 20_000}, r"row sums grow.* second_steps=20,000. Set --second"),
        ({"d": (9,)}, r"No W has a trace of -0\.75 .* frobenius=4\.2"),
    ],
    "plain-students-stop-at-minima": [
        ({"student": ("vanilla",)}, "Choices: identity, plain"),
        ({"norm": (0.5,)}, r"must be between .* Set --norm or --d"),
        ({"d": 1}, "d must be .* >= 2"),
    ],
    "population-gradient": [
        ({"teacher": ("none",)}, "Choices: random, zero"),
        ({"samples": 10}, "at least 1,000 samples. Received: samples=10"),
        ({"norm": (0.0,)}, "norm must be .* >= 0.05. Received"),
    ],
    "potential-rates": [({"d": (4,)}, "d must be .* >= 8"), ({"starts": 0}, "starts must be >= 1")],
    "random-vectors-nearly-orthogonal": [
        ({"r": (2,)}, "r must be .* >= 3"),
        ({"draws": 0}, "draws must be >= 1"),
        ({"failure": 1.0}, "failure must be in .* failure=1"),
    ],
    "risk-is-expectation": [
        ({"inputs": ("cauchy",)}, "Choices: normal, uniform"),
        ({"samples": 10}, "at least 1,000 samples. Received: samples=10"),
    ],
    "shallow-layers-suffice": [
        ({"k": (3,)}, "k must be even. Received: k=3"),
        ({"m": (0,)}, "m must be .* >= 1"),
        ({"samples": 0}, "samples must be .* >= 1"),
    ],
    "stochastic-descent-rate": [
        ({"runs": 1}, "runs must be .* >= 2"),
        ({"longest": 3}, "longest must be .* >= 4"),
        ({"d": (3,)}, "d must be even. Received: d=3"),
        ({"process": ("calm",)}, "Choices: fading, steep, turning, wavy, worst"),
    ],
    "teacher-is-unique-near-identity": [
        ({"d": (1,)}, "Received"),
        ({"norm": (0.0,)}, "Received"),
        ({"starts": 0}, "Received"),
    ],
    "teacher-student": [
        ({"frobenius": 50.0}, "Received: frobenius=50.0 .* set --frobenius or"),
        ({"start_frobenius": 50.0}, "=50.0 .* set --start-frobenius or --d"),
        ({"d": 0}, "d must be >= 1. Received: d=0"),
    ],
    "two-phases": [
        ({"descent": ("adam",)}, "Choices: printed, sgd, true"),
        ({"d": (8192,)}, r"at most 4,096 columns\. Received: d=8,192\. Set --descent"),
        ({"step": 0.9}, r"step must be in \(0, 0.75\].* step=0.9"),
        ({"d": (4,)}, r"No W has a trace of -0\.75 .* Received: trace=-0\.75\. Set"),
    ],
}


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [(name, *row) for name, rows in REJECTED.items() for row in rows],
)
def test_settings_out_of_range_are_rejected(
    name: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        type(claim_catalog.load(name).scales["cpu"])(**settings)
