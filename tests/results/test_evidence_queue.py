"""What the evidence lacks is listed, the cheapest verdict first, and measured to the end."""

import dataclasses
import math
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from pipelines.__main__ import dispatch
from pipelines.errors import Paused, UserError
from pipelines.measurement import claim_catalog, sweep
from pipelines.measurement.experiment import Experiment
from pipelines.measurement.quotation import Quotation
from pipelines.measurement.verdict import Bound, Look
from pipelines.recipes.cost import Cost, hours, minutes, seconds
from pipelines.results import markdown, scoreboard
from pipelines.results.evidence import adding, bundles, queue, recorded
from pipelines.running.run_options import RunOptions
from pipelines.tracking import store, tracked_run

THEOREM, TRAINED = "gradient-formula", "identity-beats-plain"


@pytest.fixture(autouse=True)
def folder(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the evidence is; two claims that are decided at smoke scale, and no priority."""
    monkeypatch.setattr(bundles, "FOLDER", tmp_path / "evidence")
    monkeypatch.setattr(store, "is_project_home", lambda: True)
    monkeypatch.setattr(tracked_run.Run, "figure", lambda *_: None)
    monkeypatch.setattr(queue, "LOWEST_PRIORITY", 0)
    stated = {
        name: dataclasses.replace(claim_catalog.load(name), costs={"smoke": cost}, seeds=2)
        for name, cost in {THEOREM: seconds(20), TRAINED: minutes(2, 4)}.items()
    }
    load = claim_catalog.load
    monkeypatch.setattr(claim_catalog, "load", lambda name: stated.get(name) or load(name))
    monkeypatch.setattr(claim_catalog, "project_names", lambda: list(stated))
    return bundles.FOLDER


def measure(name: str, **how: object) -> None:
    settings = claim_catalog.load(name).scales["smoke"]
    sweep.check(name, "smoke", settings, **how)  # type: ignore[arg-type]


def test_the_cheapest_verdict_comes_first_and_ends_in_the_evidence(digits: Path) -> None:
    assert [each.plan.name for each in queue.plan_decisions()] == [THEOREM, TRAINED]
    document = queue.work([THEOREM])
    assert [(each["claim"], each["scale"]) for each in document["measured"]] == [(THEOREM, "smoke")]
    assert [bundles.subject(file) for file in bundles.files()] == [THEOREM]
    [run] = recorded.read(THEOREM).runs
    assert run.plan and run.plan.seeds == 2
    assert [each.plan.name for each in queue.plan_decisions()] == [TRAINED]


def test_trained_networks_whose_seeds_lack_are_shown_without_a_verdict(digits: Path) -> None:
    measure(TRAINED, only_seed=0)
    adding.add([TRAINED])
    board = scoreboard.entries()
    assert [entry.verdict for entry in board if entry.name == TRAINED] == ["not run"]
    [begun] = [entry.begun for entry in board if entry.begun]
    assert (begun.judged["claim"], begun.judged["verdict"]) == (TRAINED, "none yet: 1 of 2 seeds")
    lines = markdown.trained_networks(scoreboard.results_document(board))
    assert " s | 1 CPU (" in lines[-1] and "none yet" in lines[-1]
    queue.work([TRAINED])
    board = scoreboard.entries()
    assert any(entry.name == TRAINED and entry.project for entry in board)
    assert not any(entry.begun for entry in board)


def test_what_is_done_of_a_claim_is_not_asked_for_again(digits: Path) -> None:
    [whole] = queue.plan_decisions([TRAINED])
    assert (whole.cost.least_s, whole.cost.most_s) == (120, 240)
    assert len(whole.document()["missing"]) == 2
    measure(TRAINED, only_seed=0)
    [rest] = queue.plan_decisions([TRAINED])
    assert list(rest.document()["missing"]) == ["1"]
    assert rest.cost.least_s < 120


@dataclasses.dataclass(frozen=True)
class Given(Bound):
    """A bound with an outcome, whatever is measured."""

    outcome: str = "holds"

    def verdict(self, values: Sequence[float]) -> str:
        return self.outcome


@pytest.mark.parametrize("outcome", ["holds", "broken", "inconclusive"])
def test_the_second_look_is_lacking_where_the_first_leaves_a_claim_open(
    digits: Path, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    looks = (Look(2, 0.98), Look(3, 0.97))
    bounds = (Given("advantage_pct", outcome=outcome),)
    stated = claim_catalog.load(TRAINED)
    changed = dataclasses.replace(stated, looks=looks, limits=(), decided_by=bounds)
    monkeypatch.setattr(claim_catalog, "load", {TRAINED: changed}.__getitem__)
    [first] = queue.plan_decisions([TRAINED])
    assert (first.plan.seeds, first.cost.least_s) == (2, 120)
    [measured] = queue.work([TRAINED])["measured"]
    assert (measured["verdict"] == "inconclusive") == (outcome == "inconclusive")
    lacking = queue.plan_decisions([TRAINED])
    assert bool(lacking) == (outcome == "inconclusive")
    for second in lacking:
        assert (second.plan.seeds, [cell.seed for cell in second.missing]) == (3, [2])
        assert second.cost.least_s == pytest.approx(60)
        queue.work([TRAINED])
        assert queue.plan_decisions([TRAINED]) == []  # two looks, no third
        assert max(run.plan.seeds for run in recorded.read(TRAINED).runs if run.plan) == 3


def test_a_broken_bound_leaves_no_second_look_where_its_source_does_not_state_a_setting(
    digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdict is `inconclusive` then, and more seeds would not change it."""
    unstated = Quotation(words="a gains", place="LY Table 9", needs={"rate": False})
    changed = dataclasses.replace(
        claim_catalog.load(TRAINED),
        looks=(Look(2, 0.98), Look(3, 0.97)),
        limits=(),
        decided_by=(Given("advantage_pct", outcome="broken"),),
        printed=(unstated,),
    )
    monkeypatch.setattr(claim_catalog, "load", {TRAINED: changed}.__getitem__)
    [measured] = queue.work([TRAINED])["measured"]
    assert measured["verdict"] == "inconclusive"
    assert queue.plan_decisions([TRAINED]) == []


def test_what_a_decision_takes_is_said_where_these_seeds_do_not_decide(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    price = "30 seeds of an hour of a GPU"
    dear = dataclasses.replace(claim_catalog.load(THEOREM), price=price)
    monkeypatch.setattr(claim_catalog, "load", {THEOREM: dear}.__getitem__)
    [decision] = queue.plan_decisions([THEOREM])
    queue.print_plan({"lacking": [decision.document()]})
    assert f"  a decision takes {price}\n" in capsys.readouterr().out


def test_a_training_that_was_stopped_is_named_with_its_step(
    digits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Paused):
        measure(TRAINED, run_options=RunOptions(until=time.monotonic(), checkpoint_every=1))
    [decision] = queue.plan_decisions([TRAINED])
    begun = [each for each in decision.trainings if each.done]
    queue.print_plan({"lacking": [decision.document()]})
    text = capsys.readouterr().out
    assert begun and all(f"{b.arm} from step {b.done} of {b.steps}" in text for b in begun)
    whole = claim_catalog.load(TRAINED).costs["smoke"]
    assert 0 < decision.cost.least_s < whole.least_s


def test_a_pause_keeps_what_was_finished_and_the_work_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = dataclasses.replace(claim_catalog.load(THEOREM), seeds=3, batch=1)  # a cell a call
    monkeypatch.setattr(claim_catalog, "load", {THEOREM: many}.__getitem__)
    with pytest.raises(Paused):
        queue.work([THEOREM], max_minutes=1e-9)
    [left] = queue.plan_decisions([THEOREM])
    assert len(left.missing) < len(left.plan.cells)
    assert bundles.rows([THEOREM]) == []  # no seed is complete
    assert queue.work([THEOREM])["measured"]
    assert bundles.rows([THEOREM])
    assert queue.plan_decisions([THEOREM]) == []


def test_what_cannot_be_measured_here_is_left_out_with_its_reason(
    digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="Did you mean"):
        queue.plan_decisions([THEOREM[:-1]])
    monkeypatch.setattr(queue, "is_at_hand", lambda name: name != "digits")
    assert queue.work([TRAINED])["left_out"] == {
        f"{TRAINED} at smoke scale": "digits is not on this machine"
    }
    on_gpu = dataclasses.replace(claim_catalog.load(THEOREM), costs={"smoke": hours(2, gpu=True)})
    monkeypatch.setattr(claim_catalog, "load", {THEOREM: on_gpu}.__getitem__)
    monkeypatch.setattr(claim_catalog, "project_names", lambda: [THEOREM])
    assert "GPU" in queue.work()["left_out"][f"{THEOREM} at smoke scale"]


def test_a_time_is_for_the_work_alone() -> None:
    with pytest.raises(UserError, match="no option --max-minutes"):
        dispatch(["evidence", "list", "--max-minutes", "3"])


def test_trained_networks_are_decided_at_their_larger_scales(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trained = claim_catalog.load(TRAINED)
    costs = {"paper": hours(7), "cpu": minutes(2), "hours": hours(1)}
    assert isinstance(trained, Experiment)
    assert dataclasses.replace(trained, costs=costs).deciding_scales == ["hours", "paper"]
    only = dataclasses.replace(trained, costs={"cpu": minutes(2)})
    assert only.deciding_scales == ["cpu"]
    theorem = dataclasses.replace(claim_catalog.load(THEOREM), costs=costs)
    assert theorem.deciding_scales == ["cpu", "hours", "paper"]
    unjudged = dataclasses.replace(trained, costs=costs, unjudged_scales=("cpu", "hours"))
    assert unjudged.deciding_scales == ["paper"]


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (seconds(22), "22 s"),
        (minutes(8), "8 min"),
        (hours(10, 19), "10 to 19 h"),
        (minutes(60, 150), "60 min to 2.5 h"),
        (hours(40 * 24), "40 days"),
        (hours(2, gpu=True) * 5, "10 GPU h"),
    ],
)
def test_a_cost_is_said_in_few_words(cost: Cost, words: str) -> None:
    assert str(cost) == words
    assert math.isclose((cost * 0.5).least_s, cost.least_s / 2)
