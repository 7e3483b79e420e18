"""Studies: every trial a child run, interrupted and continued, carried along, one plan a study."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import Unavailable, UserError
from pipelines.recipes.catalog import get_recipe
from pipelines.runtime import heartbeat
from pipelines.tracking import history, store, tracked_run
from tuning import catalog, study
from tuning.analysis import figures, summary, trial_results
from tuning.catalog import describe
from tuning.execution import open_study, trial, trial_queue
from tuning.plan import PLAN as PLAN_OF
from tuning.plan import Goal, StudyPlan, changed_fields
from tuning.search import spaces
from tuning.storage import copies, leader, storage

pytestmark = pytest.mark.usefixtures("home", "digits")
PLAN = StudyPlan(recipe="mlp-digits", scale="smoke")
RATES = StudyPlan(recipe="mlp-digits", scale="smoke", space="lr-only")

FIGURES = {name: getattr(figures, name) for name in ("study_figures", "optuna_charts")}


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take most of so short a study, and have tests of their own."""
    for name in FIGURES:
        monkeypatch.setattr(figures, name, lambda *_, **__: {})


def search(
    trials: int, plan: StudyPlan | None = PLAN, name: str = "s", **how: Any
) -> dict[str, Any]:
    return study.search(name, plan, Goal(trials), **how)


def open_new_study(plan: StudyPlan, goal: Goal, name: str = "s") -> Any:
    """A study of which no trial has begun."""
    return open_study.open_study(name, plan, goal, storage.resolve_url(), force=False)


def runs(parent: str, **tags: str) -> list[history.Row]:
    return history.rows(None, **{store.PARENT: parent, **tags})


def trials_of(parent: str) -> list[str]:
    """The statuses of the runs of its trials."""
    return sorted(row.status for row in runs(parent, kind="trial"))


def load_study(name: str = "s") -> Any:
    """What Optuna's storage has of the study."""
    return catalog.load(name, storage.resolve_url())


def contents(trials: list[Any]) -> list[dict[str, Any]]:
    """All that Optuna knows of trials, but for their place in a storage."""
    return [{**vars(each), "_trial_id": 0} for each in trials]


def points(name: str = "s") -> list[tuple[Any, ...]]:
    return [tuple(sorted(each.params.items())) for each in load_study(name).trials]


def test_a_study_starts_at_the_published_schedules_and_its_trials_are_children() -> None:
    published = spaces.published_schedules("lr-schedule", PLAN.base)
    waiting = open_new_study(PLAN, Goal(6), "waiting")
    for room in (1, 6):  # what the first goal has no room for waits for the next
        trial_queue.fill(waiting, PLAN, Goal(room))
    labels = [each.user_attrs.get(spaces.PUBLISHED) for each in waiting.trials]
    assert labels == [*published, None]
    document = search(3)
    assert trials_of(document["run_id"]) == ["FINISHED"] * 3
    assert [each["published"] for each in document["trials"]] == labels[:3]
    first = history.row(document["trials"][0]["run_id"])
    assert first.params == PLAN.base.flat()
    metrics = document["metrics"]
    assert metrics["best_val_error_pct"] == min(t["val_error_pct"] for t in document["trials"])
    assert metrics["baseline_val_error_pct"] == document["trials"][0]["val_error_pct"]
    assert metrics["gain_pct"] >= 0
    best = min(document["trials"], key=lambda each: each["val_error_pct"])
    params = history.row(best["run_id"]).params
    repeated = PLAN.base.override(**document["best_changes"])
    assert repeated.flat() == params


def test_a_study_that_was_killed_before_it_knew_its_run_goes_on_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    track = tracked_run.track

    @contextlib.contextmanager
    def end_at_once(*arguments: Any, **options: Any) -> Iterator[None]:
        with track(*arguments, **options):
            raise SystemExit(143)
        yield

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(tracked_run, "track", end_at_once)
        search(2)
    assert "run_id" not in load_study().user_attrs
    (row,) = history.rows(None, kind="study")
    assert catalog.find_run(load_study()) == row
    with pytest.raises(SystemExit), monkeypatch.context() as patch:
        patch.setattr(tracked_run, "track", end_at_once)
        search(2, force=True)  # another study of that name has another run
    own = catalog.find_run(load_study())
    assert own is not None
    assert own.id != row.id


@pytest.mark.slow
def test_the_test_set_is_read_after_the_search_with_new_seeds() -> None:
    document = search(2)
    for row in runs(document["run_id"], kind="trial"):
        assert not [key for key in row.metrics if "test" in key]
    anew = runs(document["run_id"], kind="training")
    assert {row.params["seed"] for row in anew} == {"1"}
    best = PLAN.base.override(**document["best_changes"], seed=1)
    (row,) = [row for row in anew if row.params == best.flat()]
    assert document["metrics"]["test_error_pct"] == row.metrics["test_error_pct"]


@pytest.mark.slow
def test_an_interrupted_study_ends_like_an_uninterrupted_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, calls = trial.run, []

    def dies_in_the_second(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments[0])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(trial, "run", dies_in_the_second)
    with pytest.raises(KeyboardInterrupt):
        search(4, RATES)
    assert history.rows("KILLED", kind="study", study="s")
    assert describe("s")["status"] == "KILLED"
    document = search(4, plan=None)
    assert calls[2] == calls[1]  # tried again as it was
    assert trials_of(document["run_id"]) == ["FINISHED"] * 4
    assert len(history.rows(None, kind="study")) == 1
    whole = search(4, RATES, name="t")
    assert document["metrics"]["trials"] == whole["metrics"]["trials"] == 4
    ended = [each.params for each in trial_results.finished_trials(load_study().trials)]
    assert ended == [each["params"] for each in whole["trials"]]
    assert search(4, RATES)["reused"]


@pytest.mark.slow
def test_a_trial_that_fails_is_tried_once_more_and_then_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = trial.run

    def fails_at_the_peak_of_the_paper(recipe: Any, *arguments: Any, **options: Any) -> Any:
        if recipe == PLAN.base:
            raise OSError("no such device")
        return real(recipe, *arguments, **options)

    monkeypatch.setattr(trial, "run", fails_at_the_peak_of_the_paper)
    document = search(5)
    (failed,) = [each for each in document["trials"] if each["state"] == "FAIL"]
    assert failed["published"] == "paper"
    assert "OSError: no such device" in failed["reason"]
    assert document["metrics"]["trials"] == 5
    assert "baseline_val_error_pct" not in document["metrics"]


def test_what_no_trial_could_be_trained_with_is_refused_before_there_is_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import optuna

    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    for plan, said in (
        (StudyPlan(recipe="allconv-cifar10", scale="cpu"), "data prepare cifar10"),
        (
            StudyPlan(recipe="mlp-digits", scale="smoke", changes={"batch_size": 10**6}),
            "batch_size",
        ),
    ):
        with pytest.raises(UserError, match=said):
            search(3, plan)
    assert not history.rows(None)
    assert not optuna.get_all_study_names(storage.connect(storage.resolve_url()))


@pytest.mark.parametrize(
    ("error", "tried"),
    [
        (UserError("A rate must be. Received: none. Set one."), ["WAITING"]),
        (OSError("no such device"), ["FAIL", "WAITING"]),  # three times, the first trial twice
    ],
)
def test_a_mistake_ends_a_study_at_once_and_a_crash_in_every_trial_too(
    error: Exception, tried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(trial, "run", fail)
    with pytest.raises(type(error), match=str(error)):
        search(20)
    assert history.rows("FAILED", kind="study", study="s")
    there = load_study().trials
    assert "RUNNING" not in [each.state.name for each in there]
    reasons = [(each.state.name, each.user_attrs.get("reason", "")) for each in there]
    assert [state for state, reason in reasons if str(error) in reason] == tried


@pytest.mark.slow
def test_divergence_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def wild(asked: Any, base: Any) -> Any:
        return spaces.lr_only(asked, base).override(learning_rate=1e9)

    monkeypatch.setitem(spaces.SPACES, "lr-only", wild)
    document = search(2, RATES)
    lost = document["trials"][1]
    assert (lost["state"], lost["val_error_pct"]) == ("COMPLETE", 100)
    row = history.row(lost["run_id"])
    assert (row.status, row.metrics["val_error_pct"]) == ("FINISHED", 100)
    assert int(row.tags["diverged"]) == lost["diverged"]
    assert lost["device_s"] > 0
    assert document["metrics"]["diverged_share"] == 0.5


@pytest.mark.slow
def test_hopeless_trials_are_pruned_on_validation_and_published_ones_never() -> None:
    plan = StudyPlan(
        recipe="mlp-digits",
        scale="smoke",
        pruner="median",
        sampler="random",
        changes=changed_fields(
            get_recipe("mlp-digits", "smoke").override(steps=18), get_recipe("mlp-digits", "smoke")
        ),
    )
    document = search(8, plan)
    ended = {each["state"] for each in document["trials"]}
    assert ended == {"COMPLETE", "PRUNED"}
    for each in document["trials"]:
        row, pruned = history.row(each["run_id"]), each["state"] == "PRUNED"
        assert row.status == ("KILLED" if pruned else "FINISHED")
        assert ("pruned" in row.tags) == pruned
        assert not (pruned and each["published"])
        assert each["device_s"] > 0
    steps = [list(each.intermediate_values) for each in load_study().trials]
    assert steps[0] == list(range(2, 19, 2))
    assert all(reported == steps[0][: len(reported)] for reported in steps)


@pytest.mark.slow
def test_error_and_cost_are_minimized_together() -> None:
    plan = StudyPlan(recipe="mlp-digits", scale="smoke", minimize_cost=True, sampler="nsga2")
    search(7, plan)
    base = PLAN.base
    for each in trial_results.finished_trials(load_study().trials):
        steps = int(history.row(each.user_attrs["run_id"]).params["steps"])
        assert each.values[1] == steps * base.batch_size
        assert (base.steps or 0) / 4 <= steps <= (base.steps or 0)
    lengths = {each.values[1] for each in load_study().trials}
    assert len(lengths) > 1
    best = trial_results.best_trial(load_study().trials)
    tested = {row.params["steps"] for row in runs(describe("s")["run_id"], kind="training")}
    assert tested == {str(best.user_attrs["steps"]), str(base.steps)}  # as long as it was searched


@pytest.mark.slow
def test_a_budget_shortens_every_trial_and_not_what_is_pasted() -> None:
    plan = StudyPlan(recipe="mlp-digits", scale="smoke", budget=0.5)
    document = search(2, plan)
    assert plan.base.steps == (PLAN.base.steps or 0) // 2
    for row in runs(document["run_id"]):
        assert row.params["steps"] == str(plan.base.steps)
    assert "--steps" not in document["best"]


@pytest.mark.slow
def test_goals_of_hours_and_of_patience_end_a_study() -> None:
    document = study.search("s", PLAN, Goal(trials=50, patience=1))
    errors = [each["val_error_pct"] for each in document["trials"]]
    assert len(errors) < 50
    assert errors[-1] >= min(errors[:-1])
    brief = study.search("t", PLAN, Goal(hours=1e-9))
    assert (len(brief["trials"]), brief["status"]) == (0, "FINISHED")


@pytest.mark.parametrize(
    ("goal", "errors", "spent_s", "reached"),
    [
        (Goal(trials=2), [3.0], 0, False),
        (Goal(trials=2), [3.0, 4.0], 0, True),
        (Goal(hours=1), [3.0], 3599, False),
        (Goal(hours=1), [3.0], 3600, True),
        (Goal(patience=2), [3.0, 4.0], 0, False),
        (Goal(patience=2), [3.0, 4.0, 3.0], 0, True),
        (Goal(patience=2), [3.0, 4.0, 2.0], 0, False),
        (Goal(trials=9, patience=2), [3.0, 4.0, 5.0], 0, True),
    ],
)
def test_when_a_goal_is_reached(
    goal: Goal, errors: list[float], spent_s: float, reached: bool
) -> None:
    assert goal.is_reached(errors, spent_s) == reached


@pytest.mark.slow
def test_a_proxy_is_trained_and_said_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from tuning import plan as plans

    monkeypatch.setattr(plans, "PROXIES", {"allconv-digits": ("mlp-digits",)})
    plan = StudyPlan(recipe="allconv-digits", scale="smoke", proxy="mlp-digits")
    document = search(1, plan)
    row = history.row(document["run_id"])
    assert row.tags["proxy"] == document["proxy"] == "mlp-digits"
    assert "mlp-digits" in row.tags[store.NOTE]
    assert history.row(document["trials"][0]["run_id"]).params["model"] == "mlp"
    with pytest.raises(UserError, match="A proxy of mlp-digits"):
        StudyPlan(recipe="mlp-digits", scale="smoke", proxy="allconv-digits")


@pytest.mark.slow
def test_what_a_study_leaves_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, real in FIGURES.items():
        monkeypatch.setattr(figures, name, real)
    document = search(6)
    client = store.client()
    there = {item.path for item in client.list_artifacts(document["run_id"])}
    written_once = {"trials.csv", "tunability.md", copies.FILE, "figures.html"}
    assert there >= written_once | {"schedules.png", "best_of_k.png"}
    table = store.artifact(document["run_id"], "trials.csv") or b""
    assert len(table.splitlines()) == 7
    assert [row["study"] for row in catalog.list_studies()] == ["s"]


def dead_process() -> dict[str, str]:
    """A process of this machine that has ended."""
    return heartbeat.tags() | {heartbeat.PROCESS: "1 0.0"}


def test_a_study_that_is_killed_again_and_again_tries_the_same_trial() -> None:
    import optuna

    there = optuna.create_study()
    there.enqueue_trial({"learning_rate": 0.5})
    for _ in range(3):
        taken = trial_queue.start_next(there, RATES)
        taken.set_user_attr(trial_queue.WORKER, dead_process())
        trial_queue.requeue_lost(there)  # as whoever leads next begins
        assert [each.state.name for each in there.trials] == ["WAITING"]


def test_the_hours_of_a_trial_that_is_interrupted_count() -> None:
    import optuna

    there = optuna.create_study()
    assert leader.take_lead(there, several=False)
    with leader.lead(there):
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt), study._count_hours(there):
                time.sleep(0.1)
                raise KeyboardInterrupt
    assert 0.2 <= there.user_attrs["spent_s"] < 5


def test_a_dead_worker_s_trial_waits_again_as_it_is_once() -> None:
    import optuna

    there = optuna.create_study()
    there.ask().set_user_attr(trial_queue.WORKER, heartbeat.tags())
    there.ask()  # not signed yet
    there.enqueue_trial({"learning_rate": 0.5})
    for again in ("WAITING", "FAIL"):
        taken = trial_queue.start_next(there, RATES)
        taken.suggest_float("learning_rate", 0, 1)
        if again == "WAITING":
            taken.report(50.0, step=3)
        taken.set_user_attr(trial_queue.WORKER, dead_process())
        assert trial_queue.requeue_lost(there, suspects=set()) == {2}
        assert there.trials[2].state.name == "RUNNING"  # its worker may be putting it back
        trial_queue.requeue_lost(there, suspects={2})
        assert [each.state.name for each in there.trials] == ["RUNNING", "RUNNING", again]
        assert there.trials[2].params == {"learning_rate": 0.5}
        assert there.trials[2].intermediate_values == {3: 50.0}


@pytest.mark.slow
def test_a_trial_that_was_trained_when_its_worker_was_killed_is_not_trained_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = trial.run

    def end_by_signal(*arguments: Any, **options: Any) -> Any:
        real(*arguments, **options)
        raise SystemExit(143)

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(trial, "run", end_by_signal)
        search(2, RATES)
    (first,) = history.rows(kind="trial")
    document = search(2, RATES)
    assert document["trials"][0]["run_id"] == first.id
    assert document["trials"][0]["device_s"] > 0
    assert trials_of(document["run_id"]) == ["FINISHED"] * 2


def test_one_process_leads_and_a_dead_one_is_followed() -> None:
    import optuna

    there = optuna.create_study()
    assert leader.take_lead(there, several=False)
    there.set_user_attr(
        leader.LEADER, heartbeat.tags() | {heartbeat.PROCESS: f"{os.getppid()} 0.0"}
    )
    assert leader.living_leader(there) is None
    assert leader.take_lead(there, several=True)
    other = heartbeat.tags() | {heartbeat.MACHINE: "elsewhere"}
    there.set_user_attr(leader.LEADER, other)
    assert not leader.take_lead(there, several=False)
    silent = other | {heartbeat.HEARTBEAT: str(time.time() - 2 * heartbeat.STUDY_LOST_S)}
    there.set_user_attr(leader.LEADER, silent)
    assert leader.take_lead(there, several=False)
    with leader.lead(there):
        assert leader.living_leader(there)
    assert leader.living_leader(there) is None


def test_a_leader_whose_place_is_taken_leaves_the_other_one_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import optuna

    monkeypatch.setattr(leader, "BEAT_S", 0.01)
    there, other = optuna.create_study(), heartbeat.tags() | {heartbeat.MACHINE: "elsewhere"}
    leader.take_lead(there, several=False)
    with leader.lead(there):
        there.set_user_attr(leader.LEADER, other)
        time.sleep(0.1)  # beats
        assert there.user_attrs[leader.LEADER] == other
    assert there.user_attrs[leader.LEADER] == other


def after_the_first(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], Any]) -> None:
    """Have something happen as the study's first trial has been trained."""
    real, calls = trial.run, []

    def run(*arguments: Any, **options: Any) -> Any:
        found = real(*arguments, **options)
        calls.append(arguments)
        if len(calls) == 1:
            happens()
        return found

    monkeypatch.setattr(trial, "run", run)


@pytest.mark.slow
def test_a_study_whose_lead_is_lost_is_not_summed_up_short_of_its_goal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    after_the_first(monkeypatch, lambda: load_study().set_user_attr(leader.LEADER, None))
    with pytest.raises(Unavailable, match=r"One process leads a study\. Received: s"):
        search(3)
    assert not history.rows("FINISHED", kind="study")
    assert len(search(3)["trials"]) == 3
    assert history.rows("FINISHED", kind="study")


@pytest.mark.slow
def test_a_trial_that_was_taken_for_dead_counts_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def requeue_running() -> None:
        (running,) = trial_queue.running_trials(load_study())
        trial_queue.requeue(load_study(), running, "no sign of life for 700 s")

    after_the_first(monkeypatch, requeue_running)
    document = search(2)
    assert "Trial 0 was taken for dead" in capsys.readouterr().err
    assert [each["state"] for each in document["trials"]] == ["COMPLETE"] * 2
    assert trials_of(document["run_id"]) == ["FINISHED"] * 2


@pytest.mark.slow
def test_a_study_of_another_storage_is_not_forked(tmp_path: Path) -> None:
    search(1)
    other = f"journal:///{tmp_path}/other.journal"
    for ask in (lambda: describe("s", other), lambda: search(1, where=other)):
        with pytest.raises(
            UserError, match=f"Received: {other}.*which is in {storage.resolve_url()}"
        ):
            ask()


def import_run(text: str) -> str:
    """A finished run of the study s with that artifact, as an import leaves it; its id."""
    tags = {"study": "s", "recipe": PLAN.recipe, "scale": PLAN.scale, "space": PLAN.space}
    with tracked_run.track("s", experiment="tuning", kind="study", tags=tags) as run:
        run.text(text, copies.FILE)
    return run.id


@pytest.mark.slow
def test_a_study_whose_database_is_lost_is_shown_and_goes_on() -> None:
    import optuna

    document = search(2)
    before = contents(load_study().trials)
    for _ in range(2):
        for name in optuna.get_all_study_names(storage.connect(storage.resolve_url())):
            optuna.delete_study(study_name=name, storage=storage.connect(storage.resolve_url()))
        assert describe("s") == document
        assert contents(load_study().trials) == before
        optuna.delete_study(study_name="s", storage=storage.connect(storage.resolve_url()))
        optuna.create_study(
            study_name="s", storage=storage.connect(storage.resolve_url())
        )  # half made
    assert search(2) == document | {"reused": True}
    more = search(4)
    assert more["run_id"] == document["run_id"]
    assert more["trials"][:2] == document["trials"]
    assert len(set(points())) == len(points()) == len(more["trials"]) == 4


def test_every_kind_of_trial_is_carried_and_bound_to_the_run_it_came_with() -> None:
    import optuna

    def objective(asked: Any) -> float:
        rate = asked.suggest_float("learning_rate", 1e-3, 1.0, log=True)
        asked.suggest_categorical("schedule", ["constant", "cosine"])
        asked.suggest_int("depth", 1, 9, step=2)
        asked.report(rate, 3)
        asked.set_user_attr("note", {"é": [1, None]})
        if asked.number == 1:
            raise optuna.TrialPruned
        if asked.number == 2:
            raise ValueError
        return float(rate / 3)

    there = storage.connect(storage.resolve_url())
    made = optuna.create_study(study_name="s", storage=there)
    made.optimize(objective, n_trials=4, catch=ValueError)
    made.enqueue_trial({"learning_rate": 0.5})
    made.set_user_attr("run_id", "of the machine it comes from")
    made.set_user_attr(PLAN_OF, PLAN.identity)
    before, run_id = made.trials, import_run(copies.to_journal(made))
    for half_made in (False, True):
        optuna.delete_study(study_name="s", storage=there)
        if half_made:
            half = optuna.create_study(study_name="s", storage=there)
            half.set_user_attr(PLAN_OF, PLAN.identity)
            half.set_user_attr("run_id", None)
        copies.restore("s", storage.resolve_url())
        assert load_study().user_attrs == {"run_id": run_id, PLAN_OF: PLAN.identity, "leader": None}
        assert contents(load_study().trials) == contents(before)
    states = ["COMPLETE", "PRUNED", "FAIL", "COMPLETE", "WAITING"]
    assert [each.state.name for each in before] == states


@pytest.mark.parametrize(
    "damaged",
    [
        "{\n{",
        "[]\n",
        "{}\n",
        '{"op_code":0,"worker_id":"w","study_name":"s","directions":[1]}\n',  # it has no plan
        '{"op_code":99,"worker_id":"w"}\n',
        "\x80",
    ],
)
def test_a_damaged_study_is_one_sentence_and_leaves_nothing(damaged: str) -> None:
    import optuna

    run_id = import_run(damaged)
    for ask in (lambda: describe("s"), lambda: search(1)):
        with pytest.raises(UserError, match=f"run {run_id}.*--force") as caught:
            ask()
        assert "\n" not in str(caught.value)
    assert optuna.get_all_study_names(storage.connect(storage.resolve_url())) == []


def test_a_run_that_carries_no_study_or_has_not_finished_is_no_study() -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        tracked_run.track("s", experiment="tuning", kind="study", tags={"study": "s"}) as run,
    ):
        run.text("{", copies.FILE)
        raise KeyboardInterrupt
    with tracked_run.track("t", experiment="tuning", kind="study", tags={"study": "t"}):
        pass
    for name in ("s", "t", "it's"):
        with pytest.raises(UserError, match="A study must be a known name"):
            describe(name)


@pytest.mark.slow
def test_force_starts_over_and_an_old_run_is_left_in_peace() -> None:
    first = search(1)
    second = search(1, force=True)
    assert second["run_id"] != first["run_id"]
    assert history.row(first["run_id"]).status == "FINISHED"
    assert len(second["trials"]) == 1


def test_a_study_whose_run_was_deleted_says_how_to_go_on() -> None:
    there = open_new_study(PLAN, Goal(2))
    with tracked_run.track("s", experiment="tuning", kind="study") as tracked:
        there.set_user_attr(copies.RUN, tracked.id)
    store.client().delete_run(tracked.id)
    with pytest.raises(
        UserError, match=f"was deleted.*restore --run-id {tracked.id}; or .*--force"
    ):
        search(2)


def test_mistakes_are_sentences() -> None:
    open_new_study(PLAN, Goal(1))
    with pytest.raises(UserError, match="space: lr-schedule there, lr-only here") as caught:
        search(1, RATES)
    assert "recipe" not in str(caught.value).partition("Received")[2].partition("Take")[0]
    for wrong, said in (
        (lambda: search(1, name="it's"), "study name"),
        (lambda: search(1, name="a/b"), "study name"),
        (lambda: search(1, StudyPlan(recipe="mlp-digits", sampler="grid"), name="g"), "grid of lr"),
        (lambda: describe("t"), "Choices: s"),
        (lambda: search(1, plan=None, name="t"), "Choices: s"),
    ):
        with pytest.raises(UserError, match=said):
            wrong()
    assert [row["study"] for row in catalog.list_studies()] == ["s"]
    assert summary.command(PLAN, "").endswith("smoke")
