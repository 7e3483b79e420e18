"""Studies that somebody else has written: none runs code, and what is not ours is left alone."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest

from pipelines.errors import UserError
from pipelines.tracking import tracked_run
from tuning.__main__ import dispatch
from tuning.execution import trial_queue
from tuning.plan import PLAN as PLAN_OF
from tuning.plan import StudyPlan
from tuning.search import samplers
from tuning.storage import copies, storage

pytestmark = pytest.mark.usefixtures("home")
PLAN = StudyPlan(recipe="mlp-digits", scale="smoke", space="lr-schedule", sampler="cmaes")


class Touch:
    """Unpickling it creates an empty file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Path]]:
        return Path.touch, (self.path,)


def objective(trial: Any) -> float:
    x, y = (trial.suggest_float(name, -3, 3) for name in ("learning_rate", "momentum"))
    return float((x - 1) ** 2 + (y + 2) ** 2)


def study_of_optuna(url: str, trials: int = 40) -> Any:
    """A study by Optuna's own CMA-ES, which leaves pickles in its trials."""
    study = optuna.create_study(
        study_name="s",
        storage=storage.connect(url),
        sampler=optuna.samplers.CmaEsSampler(seed=0, n_startup_trials=samplers.STARTUP_TRIALS),
    )
    study.set_user_attr(PLAN_OF, PLAN.identity)
    study.optimize(objective, n_trials=trials)
    assert any(states_of(study))
    return study


def states_of(study: Any) -> list[dict[str, str]]:
    """The pickles in its trials, in hexadecimal."""
    return [
        {key: text for key, text in trial.system_attrs.items() if ":optimizer" in key}
        for trial in study.trials
    ]


def go_on(study: Any, trials: int) -> Any:
    """Its sampler after so many more trials, which are ours."""
    for _ in range(trials):
        study.enqueue_trial({})
        trial = trial_queue.start_next(study, PLAN)
        study.tell(trial, objective(trial))
    return study.sampler


def poison(journal: Path, touched: Path) -> None:
    """Write other pickles into the trials of a journal."""
    payload = pickle.dumps(Touch(touched)).hex()
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    for line in lines:
        for key in line.get("system_attr", {}):
            if ":optimizer" in key:
                line["system_attr"][key] = payload if key.endswith(":0") else ""
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert payload in journal.read_text()


def test_the_state_of_cma_es_comes_from_the_trials_and_is_the_one_that_optuna_pickles(
    tmp_path: Path,
) -> None:
    study = study_of_optuna(f"journal:///{tmp_path}/s.journal", 39)
    pickled = "".join([state for state in states_of(study) if state][-1].values())
    stored = pickle.loads(bytes.fromhex(pickled))  # noqa: S301  (this test has written it)
    assert stored.generation > 2
    sampler = samplers.make_sampler("cmaes", 1)
    assert sampler._restore_optimizer(study.trials) is None
    space = sampler.infer_relative_search_space(study, study.trials[0])
    transform = optuna._transform._SearchSpaceTransform(space, transform_0_1=True)
    computed = sampler._init_optimizer(transform, study.direction)
    assert (computed.generation, computed._sigma) == (stored.generation, stored._sigma)
    for name in ("mean", "_C", "_p_sigma", "_pc"):
        mine, theirs = (getattr(each, name) for each in (computed, stored))
        assert (mine == theirs).all()


def test_no_state_of_a_sampler_is_unpickled_wherever_the_study_comes_from(tmp_path: Path) -> None:
    journal, touched = tmp_path / "theirs.journal", tmp_path / "it ran"
    study_of_optuna(f"journal:///{journal}")
    storage.connect.cache_clear()
    poison(journal, touched)
    in_place = optuna.load_study(study_name="s", storage=storage.connect(f"journal:///{journal}"))
    here = storage.resolve_url()
    assert copies.copy(f"journal:///{journal}", [], here) == ["s"]
    copied = optuna.load_study(study_name="s", storage=storage.connect(here))
    tags = {"study": "s"}
    with tracked_run.track("s", experiment="tuning", kind="study", tags=tags) as run:
        run.text(journal.read_text(), copies.FILE)  # as an import leaves it
    other = f"journal:///{tmp_path}/imported.journal"
    copies.restore("s", other)
    imported = optuna.load_study(study_name="s", storage=storage.connect(other))
    assert not any(states_of(copied) + states_of(imported))
    for study in (in_place, copied, imported):
        before = study.best_value
        go_on(study, 30)
        assert not any(states_of(study)[40:])
        assert study.best_value < before / 5
        assert study.trials[-1].system_attrs["cma:generation"] > 6  # it goes on where it was
    assert not touched.exists()


def foreign(url: str, name: str = "theirs", **attributes: Any) -> Any:
    """A study that another program has made."""
    study = optuna.create_study(study_name=name, storage=storage.connect(url))
    for key, value in attributes.items():
        study.set_user_attr(key, value)
    study.optimize(objective, n_trials=3)
    return study


def contents(url: str, name: str) -> list[Any]:
    study = optuna.load_study(study_name=name, storage=storage.connect(url))
    return [study.user_attrs, study.directions, study.metric_names, study.trials]


def test_studies_of_another_program_are_named_and_not_copied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = f"journal:///{tmp_path}/theirs.journal"
    foreign(journal)
    foreign(journal, "planned", plan="to minimize")
    study_of_optuna(journal, 30)
    dispatch(["copy", journal])
    printed = capsys.readouterr()
    assert printed.out == "Copied: s.\n"
    for name in ("theirs", "planned"):
        assert f"{name} is left out: this project has not made it.\n" in printed.err
        with pytest.raises(UserError, match=f"Received: {name}, which has no plan of ours"):
            dispatch(["copy", journal, name])
    assert optuna.get_all_study_names(storage.connect(storage.resolve_url())) == ["s"]


def test_a_study_of_another_program_is_neither_taken_over_nor_deleted_nor_is_that_advised(
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = storage.resolve_url()
    foreign(url)
    foreign(url, "planned", plan=["to minimize"])
    study_of_optuna(url, 1 + samplers.STARTUP_TRIALS + 12)
    before = [contents(url, name) for name in ("theirs", "planned")]
    with tracked_run.track(
        "theirs", experiment="tuning", kind="study", tags={"study": "theirs"}
    ) as run:  # which an import may bring, of the same name
        run.text(
            copies.to_journal(optuna.load_study(study_name="s", storage=storage.connect(url))),
            copies.FILE,
        )
    dispatch(["list"])
    printed = capsys.readouterr()
    assert printed.out.startswith("s ")
    assert "theirs is left out" in printed.err
    search = ["--recipe", "mlp-digits", "--scale", "smoke", "--trials", "1"]
    for words in (
        ["show", "theirs"],
        ["best", "planned"],
        ["resume", "theirs"],
        ["resume", "planned"],
        ["work", "theirs"],
        ["run", "theirs", *search],
        ["run", "planned", *search],
        ["run", "theirs", *search, "--force"],
        ["run", "planned", *search, "--force"],
    ):
        with pytest.raises(UserError, match="another program has made it, and it stays") as caught:
            dispatch(words)
        assert "--force" not in str(caught.value)
    assert [contents(url, name) for name in ("theirs", "planned")] == before


def test_a_copy_replaces_no_study_that_is_another_one_of_the_name(tmp_path: Path) -> None:
    """Before it has a run, a study is told from another by its plan."""
    here, there = storage.resolve_url(), f"journal:///{tmp_path}/theirs.journal"
    study_of_optuna(there, 30)
    mine = optuna.create_study(study_name="s", storage=storage.connect(here))
    mine.set_user_attr(PLAN_OF, PLAN.identity | {"seeds": 3})
    mine.enqueue_trial({"learning_rate": 0.5})
    before = contents(here, "s")
    with pytest.raises(UserError, match=r"is another study.*Leave it out") as caught:
        copies.copy(there, [], here)
    assert "elete" not in str(caught.value)
    assert contents(here, "s") == before
    foreign(here, "t")
    optuna.create_study(study_name="t", storage=storage.connect(there)).set_user_attr(
        PLAN_OF, PLAN.identity
    )
    with pytest.raises(UserError, match="Received: t, which has no plan of ours"):
        copies.copy(there, ["t"], here)


@pytest.mark.parametrize(
    "line",
    [
        "null",
        "[1]",
        "5",
        "{",
        "{}",
        '{"op_code":99,"worker_id":"w"}',
        '{"op_code":4,"worker_id":"w"}',
        '{"op_code":0,"worker_id":"w","study_name":"t","directions":["up"]}',
        '{"op_code":2,"worker_id":"w","study_id":0,"user_attr":5}',
    ],
)
def test_a_line_of_a_journal_that_is_no_operation_is_named_by_every_command(line: str) -> None:
    url = storage.resolve_url()
    path = Path(url.removeprefix(storage.JOURNAL))
    optuna.create_study(study_name="s", storage=storage.connect(url)).enqueue_trial({})
    storage.connect.cache_clear()  # as another process reads it
    first, *rest = path.read_text().splitlines()
    damaged = "\n".join([first, line, *rest, ""])
    path.write_text(damaged)
    for words in (["list"], ["show", "s"], ["resume", "s"], ["copy", url]):
        with pytest.raises(UserError, match="which has none in line 2 that this version knows"):
            dispatch(words)
    assert path.read_text() == damaged


def test_a_study_whose_plan_was_edited_is_named_and_the_others_are_listed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = storage.resolve_url()
    for name, field in (("recipe", 5), ("scale", None), ("space", []), ("seeds", "many")):
        study = optuna.create_study(study_name=name, storage=storage.connect(url))
        study.set_user_attr(PLAN_OF, PLAN.identity | {name: field})
    study_of_optuna(url, 30)
    dispatch(["list"])
    assert len(capsys.readouterr().out.splitlines()) == 5
    for name in ("recipe", "scale", "space", "seeds"):
        with pytest.raises(UserError, match=r"plan must be|must be a known name"):
            dispatch(["resume", name])
