"""Studies: every trial a child run, killed and continued, one plan a study."""

from pathlib import Path

import pytest

from pipelines import history
from pipelines.errors import UserError
from pipelines.published import named
from tuning import spaces
from tuning.study import Plan, search, show

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
