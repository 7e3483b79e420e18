"""Studies that somebody else has written: none runs code, and what is not ours is left alone."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.tracking import tracked_run
from tuning.execution import trial_queue
from tuning.plan import PLAN as PLAN_OF
from tuning.plan import Plan
from tuning.search import samplers
from tuning.storage import copies, storage

optuna = pytest.importorskip("optuna")

PLAN = Plan(recipe="mlp-digits", scale="smoke", space="lr-schedule", sampler="cmaes")


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
        sampler=samplers.make_sampler("cmaes", seed=0, objectives=1),
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
    sampler = samplers.make_sampler("cmaes", seed=1, objectives=1)
    trial_queue._read_no_pickle(sampler)
    assert sampler._restore_optimizer(study.trials) is None
    space = sampler.infer_relative_search_space(study, study.trials[0])
    transform = optuna._transform._SearchSpaceTransform(space, transform_0_1=True)
    computed = sampler._init_optimizer(transform, study.direction)
    assert (computed.generation, computed._sigma) == (stored.generation, stored._sigma)
    for name in ("mean", "_C", "_p_sigma", "_pc"):
        mine, theirs = (getattr(each, name) for each in (computed, stored))
        assert (mine == theirs).all()


def test_no_state_of_a_sampler_is_unpickled_wherever_the_study_comes_from(
    home: Path, tmp_path: Path
) -> None:
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
