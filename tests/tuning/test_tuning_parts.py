"""Parts of studies by themselves: plans, one trial, what a study is summed up to, its commands."""

import dataclasses
import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from matplotlib.text import Text

from pipelines.claims.networks import better_schedule_exists
from pipelines.cli.run_command import Options
from pipelines.errors import Pruned, Unavailable, UserError
from pipelines.recipes import lr
from pipelines.recipes.catalog import get_recipe
from pipelines.recipes.recipe import Recipe
from pipelines.running import code_digest, existing
from pipelines.running.existing import Result
from pipelines.running.run import TrainingObserver, run
from pipelines.running.run_options import RunOptions
from pipelines.runtime import subcommands
from pipelines.tracking import history, store, tracked_run
from tuning import catalog
from tuning.__main__ import _print_study, dispatch
from tuning.analysis import summary, trial_results
from tuning.execution import trial
from tuning.plan import OBJECTIVE, PLAN, StudyPlan, changed_fields, count_steps
from tuning.search import _ranges, spaces
from tuning.storage import storage

SMOKE = get_recipe("mlp-digits", "smoke")
LR_ONLY = StudyPlan(recipe="mlp-digits", scale="smoke", space="lr-only")
TWO_SEEDS = StudyPlan(recipe="mlp-digits", scale="smoke", space="lr-only", seeds=2)
OFTEN = RunOptions(checkpoint_every=1)


def ask_first(rate: float = 0.1, **more: float) -> Any:
    """A study in memory and its first trial, of that peak rate."""
    study = optuna.create_study(directions=["minimize"] * (2 if more else 1))
    study.enqueue_trial({"learning_rate": rate, **more})
    return study, study.ask()


def study_of(plan: StudyPlan) -> Any:
    """What is read of a study that was begun with a plan."""
    return SimpleNamespace(user_attrs={PLAN: plan.identity})


def open_study_run(study: str = "s") -> Any:
    """A study's run, which ends with the block."""
    return tracked_run.track(study, experiment="tuning", kind="study", tags={"study": study})


def stand_in_for_run(
    errors: list[Any], trained: list[Recipe], diverged: str = ""
) -> Callable[..., Result]:
    """Stands in for `run`: every call has the next error or raises it; what began is in `trained`.

    Its runs are there as those of `run` are.
    """

    def quickly(recipe: Recipe, *_: Any, **how: Any) -> Result:
        trained.append(recipe)
        error = errors.pop(0)
        tags = {"fingerprint": recipe.fingerprint, "code": code_digest.training()}
        tags |= {**how.get("tags", {}), **({"diverged": diverged} if error == 100 else {})}
        with tracked_run.track(
            "training", experiment="tuning", kind=how["kind"], tags=tags, parent=how["parent"]
        ) as own:
            if isinstance(error, BaseException):
                raise error
            own.log({OBJECTIVE: error}, 8)
        return Result(own.id, {OBJECTIVE: error})

    return quickly


@pytest.mark.slow
def test_what_a_trial_costs_is_counted_by_its_own_epochs(home: Path, digits: Path) -> None:
    in_epochs = SMOKE.override(epochs=4)
    plan = StudyPlan(
        recipe="mlp-digits",
        scale="smoke",
        space="lr-only",
        minimize_cost=True,
        changes=changed_fields(in_epochs, SMOKE),
    )
    study, first = ask_first(length=0.5)
    with open_study_run() as parent:
        values = trial.train_trial(study, first, plan, parent)
    study.tell(first, values)
    (row,) = history.rows(kind="trial")
    curve = store.client().get_metric_history(row.id, "batch_loss")
    trained = max(point.step for point in curve)
    assert trained == count_steps(plan.base) / 2 == first.user_attrs["steps"]
    assert values[1] == trained * SMOKE.batch_size
    (drawn,) = summary._schedules(plan, study.trials)
    assert len(drawn.rates) == trained


@pytest.mark.slow
def test_what_never_goes_on_leaves_no_checkpoint(home: Path, digits: Path) -> None:
    def prune(metrics: Any, step: int) -> None:
        if OBJECTIVE in metrics:
            raise Pruned(step)

    with pytest.raises(Pruned):
        run(SMOKE, OFTEN, kind="pruned", watch=TrainingObserver(prune, {}, validate_every=4))
    run(SMOKE.override(learning_rate=1e9), OFTEN, kind="diverged", watch=trial.UNWATCHED)
    for kind in ("pruned", "diverged"):
        (row,) = history.rows(None, kind=kind)
        assert kind in row.tags
        assert not existing.checkpoint_folder(row.id).exists()


def test_a_new_schedule_is_another_space_of_schedules_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    families = StudyPlan(recipe="mlp-digits", scale="smoke")
    before = {plan.space: study_of(plan) for plan in (LR_ONLY, families)}
    monkeypatch.setitem(lr.SCHEDULES, "half", lambda t: 0.5)
    assert StudyPlan.to_continue(before["lr-only"]) == LR_ONLY
    with pytest.raises(UserError, match="lr-schedule, which has changed since"):
        StudyPlan.to_continue(before["lr-schedule"])
    assert StudyPlan.from_study(before["lr-schedule"]) == families


def test_a_change_of_ranges_is_noticed_where_a_study_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costly = StudyPlan(recipe="mlp-digits", scale="smoke", space="lr-only", minimize_cost=True)
    before = [study_of(LR_ONLY), study_of(costly)]
    monkeypatch.setattr(spaces, "LENGTH", _ranges.Range(0.1, 1))
    assert StudyPlan.to_continue(before[0]) == LR_ONLY
    with pytest.raises(UserError, match="the ranges it began with"):
        StudyPlan.to_continue(before[1])
    monkeypatch.setattr(_ranges, "RATE", (1 / 16, 8))
    with pytest.raises(UserError, match="the ranges it began with"):
        StudyPlan.to_continue(before[0])


def test_a_pruned_trial_of_several_seeds_says_so_itself(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "run", stand_in_for_run([Pruned(3)], []))
    study, first = ask_first()
    with open_study_run() as parent, pytest.raises(Pruned):
        trial.train_trial(study, first, TWO_SEEDS, parent)
    (own,) = history.rows(None, kind="trial")
    assert (own.status, own.tags["pruned"]) == ("KILLED", "3")
    assert existing.find_interrupted("trial", TWO_SEEDS.base, parent) is None


def test_a_trial_of_which_one_seed_diverged_says_so_itself(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "run", stand_in_for_run([20.0, 100.0], [], diverged="5"))
    study, first = ask_first()
    with open_study_run() as parent:
        assert trial.train_trial(study, first, TWO_SEEDS, parent) == [60]
    (own,) = history.rows(kind="trial")
    assert (own.tags["diverged"], own.metrics[OBJECTIVE]) == ("5", 60)
    assert first.user_attrs["diverged"] == 5


def test_a_trial_of_several_seeds_goes_on_where_it_was_interrupted(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[Recipe] = []
    errors = [20.0, KeyboardInterrupt(), 40.0]
    monkeypatch.setattr(trial, "run", stand_in_for_run(errors, trained))
    study, first = ask_first()
    with open_study_run() as parent:
        with pytest.raises(KeyboardInterrupt):
            trial.train_trial(study, first, TWO_SEEDS, parent)
        study.enqueue_trial(first.params)
        again = study.ask()
        assert trial.train_trial(study, again, TWO_SEEDS, parent) == [30]
    assert [recipe.seed for recipe in trained] == [0, 1, 1]
    (own,) = history.rows(None, kind="trial")
    assert (own.status, own.tags["trial"]) == ("FINISHED", str(again.number))
    assert again.user_attrs["run_id"] == own.id


def test_what_a_proxy_found_is_carried_as_shares_of_what_was_published() -> None:
    proxy, target = (get_recipe(name, "cpu") for name in ("allconv-cifar10", "allconv-imagenet"))
    plan = StudyPlan(
        recipe="allconv-imagenet",
        space="lr-only",
        minimize_cost=True,
        proxy="allconv-cifar10",
        changes={"learning_rate": proxy.learning_rate / 5},
    )
    study, best = ask_first(proxy.learning_rate / 2, length=0.25)
    spaces.recipe(plan.space, plan.base, best, lengths=True)
    words = summary.override_flags(plan, study.trials[0]).split()
    said = dict(zip(words[::2], words[1::2], strict=True))
    assert float(said["--learning-rate"]) == pytest.approx(target.learning_rate / 2)
    assert int(said["--steps"]) == round((target.steps or 0) / 4)
    found = proxy.override(weight_decay=3 * proxy.weight_decay)
    other = target.override(weight_decay=0.01)
    assert summary._transfer(other, found, proxy).weight_decay == pytest.approx(0.03)


def test_where_imagenet_is_missing_its_stand_in_is_named(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "data"))
    with pytest.raises(UserError) as caught:
        dispatch(["run", "mine"])
    assert f"needs imagenet2012. Received: none in {tmp_path / 'data'}." in str(caught.value)
    stand_in = "--recipe allconv-imagenet --proxy allconv-tiny-imagenet"
    assert f"prepare tiny-imagenet, then python -m tuning run mine {stand_in}." in str(caught.value)
    with pytest.raises(UserError, match="data prepare tiny-imagenet --data-dir"):
        dispatch(["run", "mine", *stand_in.split()])


def test_what_a_proxy_found_at_a_scale_of_its_own_is_for_the_largest_of_the_recipe() -> None:
    how = {"recipe": "allconv-imagenet", "proxy": "allconv-tiny-imagenet", "space": "lr-only"}
    plan = StudyPlan(scale="hours", **how)
    study = make_study_with_best(plan)
    flags = summary.override_flags(plan, study.trials[0])
    assert summary.command(plan, flags).startswith(
        "python -m pipelines run allconv-imagenet --scale paper"
    )
    assert "--drops" not in flags  # the stairs of ImageNet stay two epochs long
    assert StudyPlan(scale="smoke", **how).target_scale == "smoke"


def summarize(
    status: str, plan: StudyPlan = LR_ONLY, complete: bool = True, run_id: str = "id"
) -> dict[str, Any]:
    """The document of a study whose run has that status and was summed up before."""
    study, one = ask_first(0.2)
    study.set_user_attr(PLAN, plan.identity)
    spaces.recipe(LR_ONLY.space, LR_ONLY.base, one)
    if complete:
        study.tell(one, 20.0)
    tags = {"best": "--learning-rate 0.2"} if complete else {}
    metrics = {f"best_{OBJECTIVE}": 20.0, "test_error_pct": 21.0} if complete else {"trials": 0.0}
    row = history.Row(run_id, "s", status, 0, 1, {}, metrics, tags)
    return summary.document(study, plan, row)


def test_what_a_study_found_is_known_while_it_is_finished(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tracked_run.track("s", experiment="tuning", kind="study") as run:
        pass
    found = summarize("FINISHED", run_id=run.id)
    assert found["best"] == "--learning-rate 0.2"
    assert found["best_changes"] == found["trials"][0]["changes"] == {"learning_rate": 0.2}
    assert found["metrics"]["test_error_pct"] == 21
    _print_study(found)
    shown = capsys.readouterr().out
    assert found["families"][0]["trial"] == 0
    assert re.search(r"\ntrial 0 +steps +20\.00 %", shown)
    assert "\ntrial 0: rate 0.2\n" in shown
    for status in ("KILLED", "RUNNING"):
        stale = summarize(status, run_id=run.id)
        assert (stale["best"], stale["best_changes"], stale["metrics"]) == (None, None, {})
        _print_study(stale)
        assert "Not finished" in capsys.readouterr().out
    _print_study(summarize("FINISHED", complete=False, run_id=run.id))
    said = capsys.readouterr().out
    assert "No trial is complete." in said
    assert "Not finished" not in said


def test_what_best_prints_trains_at_the_study_s_scale(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = summarize("FINISHED")
    words = "--scale smoke --learning-rate 0.2"
    assert found["repeat"] == f"python -m pipelines run mlp-digits {words}"
    monkeypatch.setattr(catalog, "describe", lambda *_: found)
    dispatch(["best", "s"])
    assert capsys.readouterr().out == f"{words}\n"
    assert summary.run_arguments(Options.scale, "--learning-rate 0.2") == "--learning-rate 0.2"


def make_study_with_best(plan: StudyPlan) -> Any:
    """A study in memory of the plan's own schedule and of one that is better."""
    study, own = ask_first(plan.base.learning_rate)
    study.set_user_attr(PLAN, plan.identity)
    own.set_user_attr(spaces.PUBLISHED, spaces.PAPER)
    for one, error in ((own, 30.0), (study.ask(), 20.0)):
        plan.recipe_of(one)
        study.tell(one, error)
    return study


@pytest.mark.parametrize(
    ("overridden", "called"),
    [
        ({}, "published"),
        ({"steps": 4}, "published"),
        ({"learning_rate": 0.01, "schedule": "cosine"}, "given"),
    ],
)
@pytest.mark.usefixtures("home", "digits")
def test_a_schedule_is_called_published_only_where_somebody_published_it(
    overridden: dict[str, Any],
    called: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    drawn: dict[str, Any] = {}
    again: list[str] = []

    def train(recipe: Recipe, *, title: str, **_: Any) -> Result:
        again.append(title)
        return Result("id", {"test_error_pct": 25.0})

    monkeypatch.setattr(summary, "run", train)
    monkeypatch.setattr(
        tracked_run.Run, "figure", lambda _, figure, name: drawn.update({name: figure})
    )
    own = changed_fields(SMOKE.override(**overridden), SMOKE)
    plan = StudyPlan(recipe="mlp-digits", scale="smoke", space="lr-only", changes=own)
    study = make_study_with_best(plan)
    with open_study_run() as tracked:
        summary.write(study, plan, tracked)
    row = history.row(tracked.id)
    _print_study(summary.document(study, plan, row))
    read = {
        "show": capsys.readouterr().out,
        "note": row.tags[store.NOTE],
        "report": (store.artifact(row.id, "tunability.md") or b"").decode(),
        "runs below": "\n".join(again),
        **{
            name: "\n".join(each.get_text() for each in drawn[name].findobj(Text))
            for name in ("best_of_k.png", "schedules.png")
        },
    }
    other = {"published": "given", "given": "published"}[called]
    for where, text in read.items():
        assert called in text.lower(), where
        assert other not in text.lower(), where
    assert f"trial 0 {called}" in read["show"]
    shown = " ".join(read["show"].split())
    assert f"trial 0 ({called}), 30.00 %. Gain over it: 10.00 points" in shown


@pytest.mark.parametrize(
    ("own", "called"),
    [
        ({"schedule_args": {"factor": 0.5}}, "given"),
        ({"learning_rate": 0.123}, "given"),
        ({"warmup": 0.123}, "given"),
        ({"momentum": 0.123}, "given"),
        ({"weight_decay": 0.123}, "given"),
        ({"batch_size": 8, "seed": 3}, "published"),
    ],
)
def test_what_belongs_to_a_schedule_is_known(own: dict[str, Any], called: str) -> None:
    assert StudyPlan(recipe="mlp-digits", scale="smoke", changes=own).start == called


def test_a_study_of_gp_is_read_without_pytorch_and_not_gone_on_with(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_study_run() as tracked:
        pass
    there = storage.connect(storage.resolve_url())
    study = optuna.create_study(study_name="s", storage=there)
    study.set_user_attr(PLAN, dataclasses.replace(LR_ONLY, sampler="gp").identity)
    study.set_user_attr("run_id", tracked.id)
    LR_ONLY.recipe_of(one := study.ask())
    study.tell(one, 10.0)
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *at: None if name == "torch" else find(name, *at)
    )
    assert [each["study"] for each in catalog.list_studies()] == ["s"]
    assert len(catalog.describe("s")["trials"]) == 1
    with pytest.raises(UserError, match=r"gp needs PyTorch\. Received: .* Install it"):
        StudyPlan.to_continue(study)


def test_a_study_is_shown_after_its_ranges_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    study, one = ask_first(0.2)
    study.set_user_attr(PLAN, LR_ONLY.identity)
    spaces.recipe(LR_ONLY.space, LR_ONLY.base, one)
    study.tell(one, 20.0)
    monkeypatch.setattr(_ranges, "RATE", (1 / 2, 1))
    row = history.Row("id", "s", "FINISHED", 0, 1, {}, {}, {"best": "--learning-rate 0.2"})
    found = summary.document(study, StudyPlan.from_study(study), row)
    assert (found["best"], found["best_changes"]) == ("--learning-rate 0.2", None)


def test_claims_read_finished_studies_and_invent_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subcommands, "run_json", lambda *_: {"status": "KILLED"})
    with pytest.raises(Unavailable, match="s, which is KILLED"):
        subcommands.run_study("s")
    setting: Any = better_schedule_exists.CLAIM.scales["smoke"]
    with pytest.raises(UserError, match="which has none"):
        better_schedule_exists.recipes(setting, 0, {"study": "s", "best_changes": None})


def test_there_is_one_trial_of_the_paper_s_schedule() -> None:
    study, one = ask_first()
    assert trial_results.paper_trial(study.trials) is None
    one.set_user_attr(spaces.PUBLISHED, spaces.PAPER)
    assert trial_results.paper_trial(study.trials) is None  # it has not finished
    study.tell(one, 20.0)
    assert trial_results.paper_trial(study.trials).number == one.number
