"""Studies: every trial a child run, killed and continued, carried along, one plan a study."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines import history, tracking
from pipelines.errors import UserError
from pipelines.published import named
from tuning import spaces, travel
from tuning.study import Plan, search, show, storage

PLAN = Plan("mlp-digits", "smoke", "lr-schedule")


def states(parent: str) -> list[str]:
    return [
        row.status
        for status in ("FINISHED", "FAILED", "KILLED", "RUNNING")
        for row in history.rows(status, **{"mlflow.parentRunId": parent})
    ]


def test_a_study_starts_at_the_published_schedule_and_its_trials_are_children(
    home: Path, digits: Path
) -> None:
    document = search("s", PLAN, trials=3)
    assert states(document["run_id"]) == ["FINISHED"] * 3
    first = history.row(document["trials"][0]["run_id"])
    base = named("mlp-digits", "smoke")
    assert first.params["learning_rate"] == str(base.learning_rate)
    assert first.params["schedule"] == base.schedule
    metrics = document["metrics"]
    assert metrics["best_val_error_pct"] == min(t["val_error_pct"] for t in document["trials"])
    assert metrics["baseline_val_error_pct"] == document["trials"][0]["val_error_pct"]
    best = min(document["trials"], key=lambda trial: trial["val_error_pct"])
    rate = history.row(best["run_id"]).params["learning_rate"]
    assert f"--learning-rate {rate}" in document["best"]  # to the last digit: it repeats the trial
    assert not any("test_error_pct" in history.row(t["run_id"]).metrics for t in document["trials"])


def test_a_study_goes_on_where_it_was_killed(
    home: Path, digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuning import study

    real, calls = study.run, []

    def dies_in_the_second(*arguments: object, **options: object) -> object:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(study, "run", dies_in_the_second)
    with pytest.raises(KeyboardInterrupt):
        search("s", PLAN, trials=3)
    assert history.rows("KILLED", kind="study", study="s")
    killed = calls[1][0]
    document = search("s", PLAN, trials=3)
    assert states(document["run_id"]) == ["FINISHED"] * 3
    assert document["metrics"]["trials"] == 3
    assert calls[2][0] == killed  # the killed trial is tried again with the same parameters
    assert len(history.rows(kind="study")) == 1
    assert search("s", PLAN, trials=3)["reused"]
    assert len(search("s", PLAN, trials=4)["trials"]) == 4


@pytest.mark.slow
def test_an_interrupted_study_can_be_shown_and_its_summary_made_later(
    home: Path, digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuning import study
    from tuning.__main__ import dispatch

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(study, "_summarize", interrupt)
    with pytest.raises(KeyboardInterrupt):
        search("s", PLAN, trials=2)
    dispatch(["show", "s"])
    assert show("s")["best"] is None
    monkeypatch.undo()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}/mlflow.db")
    document = search("s", PLAN, trials=2)
    assert (document["status"], document["metrics"]["trials"]) == ("FINISHED", 2)
    assert len(document["trials"]) == 2


@pytest.mark.slow
def test_force_starts_over_and_an_old_run_is_left_in_peace(home: Path, digits: Path) -> None:
    first = search("s", PLAN, trials=1)
    second = search("s", PLAN, trials=1, force=True)
    assert second["run_id"] != first["run_id"]
    assert history.row(first["run_id"]).status == "FINISHED"
    assert len(second["trials"]) == 1


def carrying(text: str) -> str:
    """A finished run of the study s with that artifact, as an import leaves it; its id."""
    tags = {"study": "s", "recipe": PLAN.recipe, "scale": PLAN.scale, "space": PLAN.space}
    with tracking.tracked("s", experiment="tuning", kind="study", tags=tags) as run:
        run.text(text, travel.FILE)
    return run.id


def held(name: str = "s") -> Any:
    """What Optuna's storage has of the study."""
    import optuna

    return optuna.load_study(study_name=name, storage=storage())


def test_a_study_whose_database_is_lost_is_shown_and_goes_on(home: Path, digits: Path) -> None:
    import optuna

    document = search("s", PLAN, trials=2)
    before = json.loads(travel.text(held()))
    (home / "optuna.db").unlink()
    assert show("s") == document
    assert json.loads(travel.text(held())) == before
    (home / "optuna.db").unlink()
    optuna.create_study(study_name="s", storage=storage())  # as a kill leaves a restoration
    assert search("s", PLAN, trials=2) == document | {"reused": True}
    more = search("s", PLAN, trials=4)
    assert more["run_id"] == document["run_id"]
    assert more["trials"][:2] == document["trials"]
    tried = [tuple(sorted(trial.params.items())) for trial in held().trials]
    assert len(set(tried)) == len(tried) == len(more["trials"]) == 4


def test_every_kind_of_trial_is_carried_and_bound_to_the_run_it_came_with(home: Path) -> None:
    import optuna

    def objective(trial: Any) -> float:
        rate = trial.suggest_float("learning_rate", 1e-3, 1.0, log=True)
        trial.suggest_categorical("schedule", ["constant", "cosine"])
        trial.suggest_int("depth", 1, 9, step=2)
        trial.report(rate, 3)
        trial.set_user_attr("note", {"é": [1, None]})
        if trial.number == 1:
            raise optuna.TrialPruned
        if trial.number == 2:
            raise ValueError
        return rate / 3

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(study_name="s", storage=storage())
    study.optimize(objective, n_trials=4, catch=ValueError)
    study.enqueue_trial({"learning_rate": 0.5})
    study.set_user_attr("run_id", "of the machine it comes from")
    study.set_user_attr(travel.PLAN, PLAN.identity)
    before, run_id = study.trials, carrying(travel.text(study))
    optuna.delete_study(study_name="s", storage=storage())
    travel.restore("s", storage())
    assert held().user_attrs == {"run_id": run_id, travel.PLAN: PLAN.identity}
    assert [trial.state.name for trial in before] == [
        "COMPLETE",
        "PRUNED",
        "FAIL",
        "COMPLETE",
        "WAITING",
    ]
    for old, new in zip(before, held().trials, strict=True):
        assert {**vars(old), "_trial_id": 0} == {**vars(new), "_trial_id": 0}


@pytest.mark.parametrize(
    "damaged",
    [
        "{",
        "[]",
        "{}",
        '{"directions": ["MINIMIZE"], "trials": [], "user_attrs": {}}',
        '{"directions": ["MINIMIZE"], "trials": [{"number": 0}], "user_attrs": {"plan": {}}}',
        '{"directions": "up", "trials": [], "user_attrs": {"plan": {}}}',
        "\x80",
    ],
)
def test_a_damaged_study_is_one_sentence_and_leaves_nothing(home: Path, damaged: str) -> None:
    import optuna

    run_id = carrying(damaged)
    for ask in (lambda: show("s"), lambda: search("s", PLAN, trials=1)):
        with pytest.raises(UserError, match=f"run {run_id}.*--force") as caught:
            ask()
        assert "\n" not in str(caught.value)
    assert optuna.get_all_study_names(storage()) == []


def test_a_run_that_carries_no_study_or_has_not_finished_is_no_study(home: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        tracking.tracked("s", experiment="tuning", kind="study", tags={"study": "s"}) as run,
    ):
        run.text("{", travel.FILE)
        raise KeyboardInterrupt
    with tracking.tracked("t", experiment="tuning", kind="study", tags={"study": "t"}):
        pass
    for name in ("s", "t", "it's"):
        with pytest.raises(UserError, match="A study must be a known name"):
            show(name)


def test_divergence_is_a_result(home: Path, digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published = spaces.lr_schedule
    wild = {"lr-schedule": lambda *given: published(*given).override(learning_rate=1e9)}
    monkeypatch.setattr(spaces, "SPACES", wild)
    document = search("s", PLAN, trials=1)
    assert states(document["run_id"]) == ["FAILED"]
    assert document["metrics"]["best_val_error_pct"] == 100


def test_mistakes_are_sentences(home: Path, digits: Path) -> None:
    search("s", PLAN, trials=1)
    with pytest.raises(UserError, match="holds"):
        search("s", Plan("allconv-digits", "smoke", "lr-schedule"), trials=1)
    with pytest.raises(UserError, match="study name"):
        search("it's", PLAN, trials=1)
    with pytest.raises(UserError, match="trials must be >= 1"):
        search("s", PLAN, trials=0)
    with pytest.raises(UserError, match="lr-schedule"):
        Plan("mlp-digits", "smoke", "lr-schedul")
    with pytest.raises(UserError, match="mlp-digits"):
        Plan("mlp-digit", "smoke", "lr-schedule")
    with pytest.raises(UserError, match="linear-teacher, a regression"):
        Plan("linear-teacher", "smoke", "lr-schedule")
    with pytest.raises(UserError, match="Choices: s"):
        show("t")


def test_the_space_stays_within_the_recipe(digits: Path) -> None:
    class Trial:
        """Stands for the lower end of every range."""

        def suggest_categorical(self, name: str, choices: list[str]) -> str:
            return choices[-1]

        def suggest_float(self, name: str, low: float, high: float, log: bool) -> float:
            return low

    base = named("allconv-digits")
    tried = spaces.lr_schedule(Trial(), base)
    changed = {k for k, v in tried.flat().items() if base.flat().get(k) != v}
    assert changed == {"schedule", "schedule_args.final", "learning_rate"}
