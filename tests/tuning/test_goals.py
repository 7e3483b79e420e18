"""Goals of studies: begun, kept, raised, and a grid's, which is fixed."""

import itertools
from typing import Any

import pytest

from pipelines.errors import Unavailable, UserError
from pipelines.runtime import heartbeat
from pipelines.tracking import tracked_run
from tuning import study
from tuning.analysis import goals
from tuning.execution import open_study, trial_queue, workers
from tuning.plan import Goal, StudyPlan
from tuning.storage import leader, storage

pytestmark = pytest.mark.usefixtures("home", "digits")
RATES = StudyPlan(recipe="mlp-digits", scale="smoke", space="lr-only")
GRID = StudyPlan(recipe="mlp-digits", scale="smoke", space="lr-only", sampler="grid")


def make_study(goal: Goal, errors: list[float], plan: StudyPlan = RATES) -> Any:
    """A study with that goal whose finished trials have these errors."""
    there = open_study.open_study("s", plan, goal, storage.resolve_url(), force=True)
    open_study.set_goal(there, goal)
    for error in errors:
        finish(there, error, plan)
    return there


def finish(there: Any, error: float, plan: StudyPlan = RATES) -> None:
    """Have one more trial."""
    there.enqueue_trial({})
    there.tell(trial_queue.start_next(there, plan), error)


@pytest.mark.parametrize(
    ("held", "asked", "found"),
    [
        ((Goal(), []), Goal(), (Goal(trials=open_study.DEFAULT_TRIALS), True)),
        (
            (Goal(patience=3), []),
            Goal(),
            (Goal(trials=open_study.DEFAULT_TRIALS, patience=3), True),
        ),
        ((Goal(hours=2), []), Goal(), (Goal(hours=2), True)),
        # started again, it goes on; what is not asked for stays
        ((Goal(trials=3), [9]), Goal(), (Goal(trials=3), True)),
        ((Goal(trials=3), [9]), Goal(trials=3), (Goal(trials=3), True)),
        ((Goal(trials=3), [9]), Goal(trials=4), (Goal(trials=4), True)),
        ((Goal(trials=3), [9]), Goal(hours=1), (Goal(trials=3, hours=1), True)),
        ((Goal(trials=3, patience=2), [9]), Goal(trials=4), (Goal(trials=4, patience=2), True)),
        # what has been reached ends a study until it is raised
        ((Goal(trials=1), [9]), Goal(), (Goal(trials=1), False)),
        ((Goal(trials=2), [9, 8]), Goal(trials=1), (Goal(trials=2), False)),
        ((Goal(trials=1), [9]), Goal(hours=1), (Goal(trials=1, hours=1), False)),
        ((Goal(trials=9, patience=1), [8, 9]), Goal(), (Goal(trials=9, patience=1), False)),
        (
            (Goal(trials=9, patience=1), [8, 9]),
            Goal(patience=2),
            (Goal(trials=9, patience=2), True),
        ),
    ],
)
def test_what_is_not_asked_for_stays(
    held: tuple[Goal, list[float]], asked: Goal, found: tuple[Goal, bool]
) -> None:
    """Goal and errors that the study has, goal that is asked for; its goal then, is any left?"""
    there = make_study(*held)
    left = open_study.set_goal(there, asked)
    assert (goals.load(there), left) == found


def test_fewer_trials_than_it_is_on_its_way_to_are_refused() -> None:
    there = make_study(Goal(trials=9), [5, 5, 5])
    for count in (2, 3, 8):
        with pytest.raises(UserError, match=rf"not lowered\. Received: {count} trials .* way to 9"):
            open_study.set_goal(there, Goal(trials=count))
    assert goals.load(there) == Goal(trials=9)


def test_the_points_of_a_grid_are_fixed_as_it_begins() -> None:
    with pytest.raises(UserError, match="no number of trials"):
        make_study(Goal(hours=1), [], GRID)
    there = make_study(Goal(trials=6), [], GRID)
    trial_queue.fill(there, GRID, goals.load(there))
    points = [each.system_attrs["fixed_params"] for each in there.trials]
    for asked in (Goal(trials=8), Goal(trials=60)):
        with pytest.raises(UserError, match=r"a grid for 6 trials.*another study name"):
            open_study.set_goal(there, asked)
    assert open_study.set_goal(there, Goal(trials=6, hours=1))
    trial_queue.fill(there, GRID, goals.load(there))
    assert [each.system_attrs["fixed_params"] for each in there.trials] == points


def test_a_grid_has_no_trials_beside_its_points() -> None:
    """With room for more, none is drawn at random; the same command goes on with the study."""
    plan = StudyPlan(recipe="mlp-digits", scale="smoke", sampler="grid")
    there = make_study(Goal(trials=90), [], plan)
    trial_queue.fill(there, plan, goals.load(there))
    points = [each.system_attrs["fixed_params"] for each in there.trials]
    assert all(points)
    assert len(points) == goals.load(there).trials < 90
    assert open_study.set_goal(there, Goal(trials=90))
    assert goals.load(there).trials == len(points)


def test_a_study_is_not_started_over_while_a_worker_trains_a_trial_of_it() -> None:
    there = make_study(Goal(trials=3), [])
    there.enqueue_trial({})
    at_work = trial_queue.start_next(there, RATES)
    with pytest.raises(Unavailable, match="cannot be started over"):
        make_study(Goal(trials=3), [])
    there.tell(at_work, 1.0)
    assert len(make_study(Goal(trials=3), []).trials) == 0


def test_a_trial_that_is_told_to_end_waits_again_also_where_its_run_cannot_be_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def train(*_: object) -> list[float]:
        try:
            raise SystemExit(143)
        finally:
            raise OSError("database is locked")

    monkeypatch.setattr(workers, "train_trial", train)
    there = make_study(Goal(trials=3), [])
    there.enqueue_trial({})
    with tracked_run.track("s", experiment="tuning", kind="study") as run:
        assert leader.take_lead(there, several=False)
        with pytest.raises(SystemExit, match="143"):
            workers.work(there, RATES, tracked_run.Parent(run.id, "tuning"), lambda: None)
    assert there.trials[0].state.name == "WAITING"
    assert there.trials[0].user_attrs["reason"] == "it was told to end"
    assert not there.trials[0].user_attrs["failures"]


@pytest.mark.slow
def test_who_helps_another_leads_then_to_the_goal_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other one is played: it leads for a few looks at who does."""
    there = make_study(Goal(trials=1), [])
    with tracked_run.track("s", experiment="tuning", kind="study", tags={"study": "s"}) as run:
        there.set_user_attr("run_id", run.id)
        trial_queue.fill(there, RATES, Goal(trials=1))
    looks, real = itertools.count(), leader.living_leader
    monkeypatch.setattr(
        leader, "living_leader", lambda each: heartbeat.tags() if next(looks) < 8 else real(each)
    )
    found = study.search("s", RATES, Goal(trials=2))
    assert len(found["trials"]) == 2
    assert not found["reused"]


def test_a_crew_gives_up_on_deaths_that_nothing_finishes_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Killed:
        def poll(self, *_: object) -> int:
            return -9

        terminate = wait = poll

    looks = iter(range(100))
    monkeypatch.setattr(workers, "_start", lambda *_: Killed())
    monkeypatch.setattr(workers, "POLL_S", 0)
    there = make_study(Goal(trials=50), [])
    with pytest.raises(Unavailable, match="killed again and again"):
        workers.run_workers(
            there, storage.resolve_url(), 2, lambda: finish(there, 1.0) if next(looks) < 6 else None
        )
    assert next(looks) == 9  # two deaths a look, six of them with nothing finished between
