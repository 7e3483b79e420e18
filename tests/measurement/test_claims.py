"""Every claim runs at smoke scale and is recorded; a new file is a new claim."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from pipelines.errors import UserError
from pipelines.measurement import cells, claim, claim_catalog, sweep
from pipelines.measurement.claim_run.page import CURVE
from pipelines.measurement.plan import MeasurementPlan, stated_plan, stated_plan_of
from pipelines.measurement.quotation import ACCUSED, Quotation
from pipelines.measurement.verdict import (
    EXPERIMENT,
    THEOREM,
    TWO_LOOKS,
    VERDICTS,
    Bound,
    LearningLimit,
)
from pipelines.recipes.cost import hours, minutes
from pipelines.results import scoreboard
from pipelines.running.run_options import RunOptions
from pipelines.tracking import history, store
from tests.conftest import PREPARED, needs

SCALES = {"smoke", "cpu"}


QUICK = ("sgd-follows-descent",)  # of experiments


def trained(name: str) -> bool:
    """Whether it takes minutes at the claim's own number of seeds; the quickstart trains five."""
    return claim_catalog.load(name).trains and name not in QUICK


def marked(name: str) -> Any:
    """Photographs are real ones at every scale; all else needs no download at smoke scale."""
    photographs = name.endswith("-imagenet")
    marks = [pytest.mark.slow] * trained(name) + [needs("imagenet2012")] * photographs
    return pytest.param(name, marks=marks)


def decided_at_smoke_scale(name: str) -> bool:
    """Whether it is a theorem that is not only about numbers reported of the paper's scale."""
    tested_claim = claim_catalog.load(name)
    decided = {bound.metric for bound in tested_claim.decided_by} - tested_claim.reported.keys()
    return isinstance(tested_claim, claim.Theorem) and bool(decided)


@pytest.mark.parametrize("name", [marked(name) for name in claim_catalog.names()])
def test_claim_at_smoke_scale(
    name: str, home: Path, digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name.endswith("-imagenet"):
        monkeypatch.setenv("TFDS_DATA_DIR", str(PREPARED))
    tested_claim = claim_catalog.load(name)
    assert set(tested_claim.scales) >= SCALES
    setting = claim_catalog.get_settings(name, "smoke")
    document = sweep.check(name, "smoke", setting, seeds=1 if trained(name) else None)
    assert document["claim"] == name
    assert document["verdict"] in VERDICTS
    if decided_at_smoke_scale(name):
        assert document["verdict"] in ("holds", "holds as corrected")
    assert len(document["quotations"]) == len(tested_claim.printed)
    assert {bound.metric for bound in tested_claim.decided_by} <= document["metrics"].keys()
    row = history.row(document["run_id"])
    assert row.status == "FINISHED"
    assert [a.path for a in store.client().list_artifacts(row.id)].count("figure.png")
    assert tested_claim.says in row.tags["mlflow.note.content"]
    plan = stated_plan(name, "smoke", document["seeds"])
    assert len(cells.read_plan(plan, row.id) or []) == len(plan.cells)
    charted = {key for curves in tested_claim.charts for key in curves}
    assert charted == {name_of_curve(key) for key in row.metrics if key.startswith(CURVE)}
    assert charted or tested_claim.trains
    assert all(r.tags["kind"] != "setting" for r in history.rows(**{store.PARENT: row.id}))


def name_of_curve(metric: str) -> str:
    return metric.removeprefix(CURVE).rpartition(" ")[2]


@pytest.mark.parametrize("name", claim_catalog.names())
def test_a_claim_states_itself_in_latex_and_names_what_it_quotes(name: str) -> None:
    """The formula is one, of closed braces; a sentence fails only where all is stated."""
    tested_claim = claim_catalog.load(name)
    formula, quoted = tested_claim.formula, tested_claim.printed
    assert len({each.place for each in quoted}) == len(quoted)
    for each in quoted:
        assert each.words
        assert each.broken == "not tested" or not each.unstated
        assert each.judge({}).grade == "not tested"  # nothing is accused that was not measured
    assert formula
    assert formula.count("{") == formula.count("}")
    assert formula.count(r"\begin{split}") == formula.count(r"\end{split}") <= 1
    assert formula.count(r"\begin") <= 1


def test_a_finished_claim_is_found_and_force_repeats_it(home: Path) -> None:
    name = "small-norm-factorization"
    setting = claim_catalog.load(name).scales["smoke"]
    first = sweep.check(name, "smoke", setting, seeds=1)
    count = len(history.rows(status=None))
    again = sweep.check(name, "smoke", setting, seeds=1)
    assert (again["run_id"], again["reused"]) == (first["run_id"], True)
    assert len(history.rows(status=None)) == count
    assert (
        sweep.check(name, "smoke", setting, seeds=1, run_options=RunOptions(force=True))["run_id"]
        != first["run_id"]
    )
    assert sweep.check(name, "smoke", setting, seeds=2)["run_id"] != first["run_id"]


def test_a_new_file_is_a_new_claim(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "two_is_two.py").write_text(
        '"""Two is two."""\n'
        "from matplotlib.figure import Figure\n"
        "from dataclasses import dataclass\n"
        "from pipelines.measurement.claim import Theorem\n"
        "from pipelines.measurement.verdict import Bound\n"
        "@dataclass(frozen=True)\n"
        "class Setting:\n"
        "    two: float = 2.0\n"
        "CLAIM = Theorem(source='us', says='two is two', family='t', scales={'cpu': Setting()},\n"
        "    decided_by=(Bound('gap', at_most=0, every=True),), figure=lambda measured: Figure(),\n"
        "    measure=lambda cells: ([0], {'gap': cells.values('two')[:, None] - 2}))\n"
    )
    monkeypatch.setattr("pipelines.claims.__path__", [str(tmp_path)])
    assert claim_catalog.names() == ["two-is-two"]
    setting = claim_catalog.load("two-is-two").scales["cpu"]
    assert sweep.check("two-is-two", "cpu", setting)["verdict"] == "holds"
    wrong = type(setting)(two=2.5)
    assert sweep.check("two-is-two", "cpu", wrong)["verdict"] == "refuted"
    assert [entry.view.text("says") for entry in scoreboard.entries()] == ["two is two"]


def test_a_reported_number_is_not_judged_at_a_smaller_scale() -> None:
    tested_claim = claim_catalog.load("gradient-formula")
    numbers = {
        "source": "LY",
        "says": "x",
        "family": "f",
        "scales": {},
        "decided_by": (Bound("error_pct", at_most=7),),
        "measure": tested_claim.measure,
        "figure": tested_claim.figure,
        "reported": {"error_pct": 6.97},
    }
    values = {"error_pct": [6.0, 6.1, 6.2]}
    assert claim.Theorem(**numbers).verdict(values, "cpu") == "not judged (smaller run)"
    assert claim.Theorem(**numbers).verdict(values, "paper") == "holds"
    assert claim.Theorem(**numbers, words=EXPERIMENT).verdict(values, "paper") == "reproduced"


def comparison() -> claim.Claim:
    """Return a claim that arm b errs at least half a point less than arm a."""
    return claim.Claim(
        source="ours",
        says="x",
        family="f",
        scales={},
        decided_by=(Bound("gain_pct", at_least=0.5),),
        figure=lambda measured: None,
        limits=(LearningLimit(("a_pct", "b_pct"), at_most=27.0),),
        printed=(quotation(Bound("gain_pct", at_least=5.0)),),
        words=EXPERIMENT,
    )


def quotation(*bounds: Bound, **more: Any) -> Quotation:
    """Return a sentence of which all is stated, so that it fails where a bound is broken."""
    stated = {"needs": {"rate": True}, "broken": "fails"} | more
    return Quotation(words="b gains five points", place="LY Table 9", bounds=bounds, **stated)


@pytest.mark.parametrize(
    ("best", "scale", "expected"),
    [
        (18.0, "cpu", "reproduced"),
        (57.0, "cpu", "not judged (smaller run)"),
        (57.0, "paper", "inconclusive"),
        (18.0, "smoke", "not judged (smaller run)"),
    ],
)
def test_networks_that_have_not_learned_decide_nothing(
    best: float, scale: str, expected: str
) -> None:
    values = {"gain_pct": [2.0, 2.1, 1.9], "a_pct": [best + 2] * 3, "b_pct": [best] * 3}
    assert comparison().verdict(values, scale) == expected


FIVE, OTHER = Bound("gain_pct", at_least=5.0), Bound("other", at_most=1.0)
EVERY = Bound("gain_pct", at_most=1.0, every=True)


@pytest.mark.parametrize(
    ("bounds", "gains", "said"),
    [
        ([FIVE], [6.0, 6.1, 5.9], "holds as printed"),
        ([FIVE], [2.0, 2.1, 1.9], "the printed version fails: gain_pct 2, not >= 5"),
        ([FIVE], [2.0, 8.0], "not tested: the interval straddles what is printed"),
        ([OTHER], [6.0, 6.1], "not tested"),
        ([], [], "not tested"),
        (
            [EVERY],
            [0.5, 0.5, 1.2],
            "the printed version fails: gain_pct 1.2, not <= 1 for every seed",
        ),
        # a failure is said even where another part was not measured
        ([FIVE, OTHER], [2.0] * 3, "the printed version fails: gain_pct 2, not >= 5"),
        ([FIVE, OTHER], [6.0] * 3, "not tested"),
    ],
)
def test_the_quoted_sentence_is_graded_beside_the_tested_one(
    bounds: list[Bound], gains: list[float], said: str
) -> None:
    assert str(quotation(*bounds).judge({"gain_pct": gains})) == said
    assert str(quotation(note="row 3").judge({})) == "not tested: row 3"


def test_a_sentence_of_which_a_setting_is_not_stated_is_never_said_to_fail() -> None:
    bound = Bound("gain_pct", at_least=5.0)
    for accusation in ACCUSED:
        with pytest.raises(ValueError, match="how long not stated at LY Table 9"):
            quotation(bound, needs={"rate": True, "how long": False}, broken=accusation)
    with pytest.raises(ValueError, match="no needs at LY Table 9"):
        quotation(bound, needs={})
    careful = quotation(bound, needs={"how long": False}, broken="not tested")
    assert str(careful.judge({"gain_pct": [2.0] * 3})) == "not tested: here gain_pct is 2"
    assert careful.judge({"gain_pct": [6.0] * 3}).grade == "holds"
    with pytest.raises(ValueError, match="A quotation that is not true"):
        quotation(bound, broken="holds")


@pytest.mark.parametrize(
    ("broken", "expected"),
    [("slip", "holds as corrected"), ("not tested", "holds"), ("fails", "holds as corrected")],
)
def test_a_theorem_of_which_a_quoted_sentence_does_not_hold_holds_as_corrected(
    broken: str, expected: str
) -> None:
    printed = (quotation(Bound("gain_pct", at_least=5.0), broken=broken),)
    theorem = dataclasses.replace(comparison(), printed=printed, words=THEOREM, limits=())
    assert theorem.verdict({"gain_pct": [2.0, 2.1, 1.9]}, "cpu") == expected
    assert theorem.verdict({"gain_pct": [6.0, 6.1, 5.9]}, "cpu") == "holds"
    assert theorem.verdict({"gain_pct": [0.1, 0.1, 0.1]}, "cpu") == "refuted"


def test_a_claim_with_a_price_is_not_decidable_here_until_a_run_decides_it() -> None:
    priced = dataclasses.replace(comparison(), price="30 seeds of 10 minutes of a GPU")
    learned = {"a_pct": [20.0] * 3, "b_pct": [18.0] * 3}
    assert priced.verdict_without_run == "not decidable here"
    assert comparison().verdict_without_run == "not run"
    assert priced.verdict({"gain_pct": [0.0, 1.0, 0.4], **learned}, "cpu") == "not decidable here"
    assert priced.verdict({"gain_pct": [2.0] * 3, **learned}, "cpu") == "reproduced"
    assert priced.verdict({"gain_pct": [0.1] * 3, **learned}, "cpu") == "not reproduced"


def test_every_limit_must_be_met() -> None:
    limits = (LearningLimit(("a_pct",), at_most=27.0), LearningLimit(("b_pct",), at_most=50.0))
    tested_claim = dataclasses.replace(comparison(), limits=limits)
    values = {"gain_pct": [2.0] * 3, "a_pct": [90.0] * 3, "b_pct": [18.0] * 3}
    judged = tested_claim.judge(values, "paper")
    assert judged["verdict"] == "inconclusive"
    assert judged["as_printed"] == "LY Table 9: not tested"
    assert judged["floor"] == "no, a_pct 90 %, limit 27 %; yes, b_pct 18 %, limit 50 %"
    assert tested_claim.judge(values | {"a_pct": [26.0] * 3}, "paper")["verdict"] == "reproduced"


def test_trained_networks_are_judged_in_the_settings_of_a_scale_alone() -> None:
    values = {"gain_pct": [2.0] * 3, "a_pct": [20.0] * 3, "b_pct": [18.0] * 3}
    trained = dataclasses.replace(comparison(), recipes=lambda setting, seed: {})
    assert trained.verdict(values, "paper") == "reproduced"
    assert trained.verdict(values, "paper", altered=True) == "not judged (smaller run)"
    reported = dataclasses.replace(comparison(), reported={"gain_pct": 2.0})
    assert reported.verdict(values, "paper") == "reproduced"
    assert reported.verdict(values, "paper", altered=True) == "not judged (smaller run)"


@pytest.mark.parametrize("name", ["fixed-projection-helps", "small-norm-factorization"])
def test_fewer_seeds_than_stated_or_one_apart_are_not_the_stated_ones(name: str) -> None:
    def is_stated(seeds: int, first: int = 0) -> bool:
        setting = claim_catalog.load(name).scales["cpu"]
        plan = MeasurementPlan(
            name=name, scale="cpu", settings=setting, seeds=seeds, first_seed=first
        )
        return plan.is_as_stated

    assert [is_stated(seeds) for seeds in (4, 5, 6)] == [False, True, True]
    assert not is_stated(5, first=1)


@pytest.mark.parametrize("only_seed", [0, 3])
def test_the_run_of_every_claim_is_found_to_be_as_stated(only_seed: int) -> None:
    for name in claim_catalog.names():
        for scale in claim_catalog.load(name).scales:
            seeds = claim_catalog.load(name).seeds
            plan = stated_plan(name, scale, seeds, first_seed=only_seed)
            tags = {"claim": name, "scale": scale, "seeds": str(seeds)}
            tags |= {"fingerprint": plan.fingerprint}
            params = {key: str(value) for key, value in plan.params.items()}
            found = stated_plan_of(history.Row("", "", "FINISHED", 0, 1, params, {}, tags))
            assert found, (name, scale)
            assert (found.first_seed, found.seeds) == (only_seed, seeds), (name, scale)
            assert found.is_as_stated == (only_seed == 0), (name, scale)


def test_more_seeds_of_trained_networks_can_weaken_a_verdict_and_never_give_one() -> None:
    tested_claim = dataclasses.replace(comparison(), seeds=3, recipes=lambda setting, seed: {})

    def judge(gains: list[float]) -> tuple[str, str]:
        learned = {"a_pct": [20.0] * len(gains), "b_pct": [18.0] * len(gains)}
        judged = tested_claim.judge({"gain_pct": gains, **learned}, "paper")
        return judged["verdict"], judged["as_printed"].removeprefix("LY Table 9: ")

    good, bad, unclear = [4.0, 4.1, 4.2], [-4.0, -4.1, -4.2], [0.0, 4.0, 1.0]
    verdicts = [judge(each)[0] for each in (good, bad, unclear)]
    assert verdicts == ["reproduced", "not reproduced", "inconclusive"]
    assert judge([*good, 4.0])[0] == "reproduced"
    assert judge([*good, *bad, *bad])[0] == "inconclusive"
    assert judge([*unclear, *good, *good, *good])[0] == "inconclusive"
    assert judge(unclear)[1] == "not tested: the interval straddles what is printed"
    more = judge([*unclear, *bad, *bad, *bad])[1]
    assert more == "not tested: more seeds than the claim states say another thing"


def test_of_two_looks_the_first_that_decides_counts_and_each_has_its_level() -> None:
    tested_claim = dataclasses.replace(
        comparison(), recipes=lambda setting, seed: {}, limits=(), **TWO_LOOKS
    )

    def judge(gains: list[float]) -> tuple[str, str]:
        judged = tested_claim.judge({"gain_pct": gains}, "paper")
        return judged["verdict"], judged["look"]

    near = [1.3, 2.0, 2.7]  # down to 0.04 by half widths of 2.80 sd, 0.82 by the 1.69 of 95 %
    [bound] = tested_claim.judge({"gain_pct": near}, "paper")["bounds"]
    half = stats.t.ppf(0.98, 2) * 0.7 / np.sqrt(3)
    np.testing.assert_allclose(bound["interval"], [2 - half, 2 + half])
    assert judge(near) == (
        "inconclusive",
        "1 of 2: after 3 seeds, by intervals of 98 % at each end",
    )
    one_look = dataclasses.replace(tested_claim, looks=())
    assert one_look.judge({"gain_pct": near}, "paper")["verdict"] == "reproduced"

    assert judge([*near, 2.0, 2.0])[0] == "inconclusive"  # between two looks
    assert judge([*near, *near]) == (
        "reproduced",
        "2 of 2: after 6 seeds, by intervals of 97 % at each end",
    )
    first = [4.0, 4.1, 4.2]
    assert judge(first)[0] == "reproduced"
    assert judge([*first, 4.0, 4.1, 4.2])[0] == "reproduced"
    assert judge([*first, -4.0, -4.1, -4.2])[0] == "inconclusive"  # the second contradicts
    straddling = [0.0, 4.0, 1.0, 0.0, 4.0, 1.0]
    assert judge([*straddling, *[4.0] * 20])[0] == "inconclusive"  # more seeds give no verdict
    with pytest.raises(ValueError, match="first after its seeds"):
        dataclasses.replace(tested_claim, seeds=5)


def test_what_takes_a_gpu_or_more_than_six_hours_is_not_decidable_here() -> None:
    def verdict(**changed: Any) -> tuple[str, str]:
        changed_claim = dataclasses.replace(comparison(), **changed)
        return changed_claim.verdict_without_run, changed_claim.decision_price

    costs = {"cpu": minutes(5), "hours": hours(7, 9), "paper": hours(2, gpu=True)}
    price = "7 to 9 h of 2 cores at hours scale, or 2 GPU h at paper scale"
    unjudged = {"unjudged_scales": ("cpu",)}
    assert verdict(costs=costs, **unjudged) == ("not decidable here", price)
    assert verdict(costs={**costs, "hours": hours(6, 9)}, **unjudged) == ("not run", "")
    assert verdict(costs={}) == ("not run", "")
    assert verdict(costs=costs, price="30 seeds") == ("not decidable here", "30 seeds")


def test_other_data_than_the_sources_are_not_judged() -> None:
    tested_claim = claim_catalog.load("zero-init")
    [limit] = tested_claim.limits
    values = {metric: [1.5, 1.5] for metric in limit.metrics}
    values |= {bound.metric: [90.0, 90.0] for bound in tested_claim.decided_by}
    assert [tested_claim.verdict(values, scale) for scale in ("cpu", "paper")] == [
        "not judged (smaller run)",
        "inconclusive",  # LY do not state all that their numbers depend on
    ]
    for scale in ("cpu", "paper"):
        grades = tested_claim.grades(values, scale)
        assert [grade.grade for _, grade in grades] == ["not tested", "not tested"]


def test_an_experiment_is_not_denied_where_a_setting_is_not_stated() -> None:
    """Unless it holds; a theorem of which a bound is broken is refuted in any case."""
    broken, holds = {"gain_pct": [-9.0, -9.1]}, {"gain_pct": [9.0, 9.1]}
    for is_stated, word in ((True, "not reproduced"), (False, "inconclusive")):
        quoted = Quotation(words="b gains", place="LY Table 9", needs={"rate": is_stated})
        experiment = dataclasses.replace(comparison(), printed=(quoted,), limits=())
        assert experiment.verdict(broken, "paper") == word
        assert experiment.verdict(holds, "paper") == "reproduced"
        theorem = dataclasses.replace(experiment, words=THEOREM)
        assert theorem.verdict(broken, "paper") == "refuted"
        priced = dataclasses.replace(experiment, price="30 seeds")
        assert priced.verdict(broken, "paper") == (word if is_stated else "not decidable here")


def test_unknown_names_list_the_nearest() -> None:
    with pytest.raises(UserError, match="Did you mean gradient-formula"):
        claim_catalog.load("gradient-formulae")
    with pytest.raises(UserError, match="smoke"):
        claim_catalog.get_settings("gradient-formula", "paper")


def test_the_note_repeats_the_run_as_it_was(home: Path) -> None:
    name = "small-norm-factorization"
    setting = type(claim_catalog.load(name).scales["smoke"])((3, 4), (0.5,), (5, 8, 16))
    document = sweep.check(name, "smoke", setting, seeds=2)
    note = history.row(document["run_id"]).tags["mlflow.note.content"]
    assert f"run {name} --scale smoke --seeds 2 --d 3 4 --force" in note
    document = sweep.check(name, "smoke", setting, only_seed=5)
    note = history.row(document["run_id"]).tags["mlflow.note.content"]
    assert f"run {name} --scale smoke --only-seed 5 --d 3 4 --force" in note


@pytest.mark.slow
def test_a_diverged_arm_is_a_result(home: Path, digits: Path) -> None:
    name = "identity-beats-plain"
    setting = dataclasses.replace(claim_catalog.load(name).scales["smoke"], plain_rate=1e9)
    document = sweep.check(name, "smoke", setting, seeds=1)
    assert math.isnan(document["metrics"]["plain_test_error_pct"]["mean"])
    assert math.isnan(document["metrics"]["advantage_pct"]["mean"])
    assert document["verdict"] == "not judged (smaller run)"


@pytest.mark.slow
def test_a_recipe_is_a_claims_setting(home: Path, digits: Path) -> None:
    name, scale = "allconv-cifar10", "smoke"
    recipe = claim_catalog.get_settings(name, scale)
    other = recipe.override(learning_rate=0.01, model_args={"widths": (16, 20, 24)}, augment=False)
    document = sweep.check(name, scale, other, seeds=2)
    assert document["verdict"] == "not judged (smaller run)"
    assert document["reported"] == {"best_half_seen_test_error_pct": 6.38}
    parent = history.row(document["run_id"])
    assert parent.tags["as_stated"] == "False"
    assert parent.params["model_args.widths"] == "[16, 20, 24]"
    note = parent.tags["mlflow.note.content"]
    command = note.partition("Repeat: `")[2].partition("`")[0].split(" --")
    assert {"no-augment", "learning-rate 0.01", "widths 16 20 24", "seeds 2"} <= {*command}
    trained = history.rows(kind="training")
    assert sorted(row.params["seed"] for row in trained) == ["0", "1"]
    assert {row.tags["run_as"] for row in trained} == {f"{name} {scale}"}
    swept = sweep.sweep(name, scale, ["learning_rate=0.01,0.02"], seeds=1)
    rates = [row.params["learning_rate"] for row in history.rows(kind="training")[:2]]
    assert sorted(rates) == ["0.01", "0.02"]
    assert len(swept["settings"]) == 2
    with pytest.raises(UserError, match=r"A grid axis that is a number .*'model_args'"):
        sweep.sweep(name, scale, ["model_args=1,2"], seeds=1)


DECIDED_WITHOUT_A_LIMIT = {
    "sgd-follows-descent": "linear networks, compared with a descent that is computed",
    "standard-init-diverges": "about the first 20 steps",
    "teacher-student": "judged at paper scale only, where losses of 0 can be reached",
}
TRAINED = [name for name in claim_catalog.names() if claim_catalog.load(name).recipes]


@pytest.mark.parametrize("name", TRAINED)
def test_what_is_said_of_trained_networks_needs_networks_that_have_learned(name: str) -> None:
    """Whoever is not judged by a published number alone states a limit, or where it is judged."""
    tested_claim = claim_catalog.load(name)
    own = [bound for bound in tested_claim.decided_by if bound.metric not in tested_claim.reported]
    assert not own or tested_claim.limits or name in DECIDED_WITHOUT_A_LIMIT
    for limit in tested_claim.limits:
        others = {metric: [0.0] * 5 for each in tested_claim.limits for metric in each.metrics}
        values = {bound.metric: [0.0] * 5 for bound in tested_claim.decided_by} | others
        values |= {metric: [90.0] * 5 for metric in limit.metrics}
        assert tested_claim.verdict(values, "cpu") == "not judged (smaller run)"
        assert tested_claim.outcome(values, "paper") == "inconclusive"
