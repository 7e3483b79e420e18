"""Studies: Optuna chooses, the ordinary `run` trains, MLflow holds study and trials.

With travel.py the only module that imports Optuna. A study is kept in a database beside MLflow's;
started again it goes on to the number of trials asked for. Where that database lacks it, it is made
anew from what its finished run in MLflow carries.
"""

import dataclasses
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from pipelines import data, history, live, samples, store, tracking, ui
from pipelines.errors import Diverged, UserError, check_counts, unknown
from pipelines.published import named
from pipelines.recipes import Recipe, digest
from pipelines.run import Habits, run
from tuning import spaces, travel

OBJECTIVE = "val_error_pct"  # never the test error
EVERY = Habits(force=True)  # trials are counted: each is trained
NAME = re.compile(r"[\w.-]+")
LOST = 100.0  # the error of a trial whose loss diverged


@dataclass(frozen=True)
class Plan:
    """What a study searches; a study of that name with another plan is refused."""

    recipe: str
    scale: str
    space: str

    def __post_init__(self) -> None:
        if self.space not in spaces.SPACES:
            raise unknown("A search space", self.space, spaces.SPACES)
        if isinstance(data.DATASETS.get(self.base.data), samples.Samples):
            raise UserError(
                "A study lowers the validation error of a classifier. Received: recipe "
                f"{self.recipe}, a regression on {self.base.data}. Choose another --recipe."
            )

    @property
    def base(self) -> Recipe:
        return named(self.recipe, self.scale)

    @property
    def identity(self) -> dict[str, str]:
        return dataclasses.asdict(self) | {"fingerprint": self.base.fingerprint}


def storage() -> str:
    """The studies' database: beside MLflow's, and one for every tracking server."""
    own = store.uri().startswith(store.SQLITE)
    name = "optuna.db" if own else f"optuna-{digest(store.uri())}.db"
    return f"sqlite:///{store.home() / name}"


def search(name: str, plan: Plan, trials: int, force: bool = False) -> dict[str, Any]:
    """Bring the study to that many finished trials and return its document.

    A study that was interrupted goes on, in the same MLflow run, and tries the trials that were cut
    short again as they were. `force` starts over.
    """
    check_counts(trials=trials)
    if not NAME.fullmatch(name):
        raise UserError(
            f"A study name has letters, digits, '.', '_' and '-' only. Received: {name!r}. "
            "Take another name."
        )
    with _alone(name):
        study = _open(name, plan, force)
        row = _own_run(study)
        missing = trials - len(_finished(study))
        if missing <= 0 and row and row.status == "FINISHED":
            return show(name) | {"reused": True}
        with tracking.tracked(
            name,
            experiment="tuning",
            kind="study",
            params=plan.base.flat() | {"space": plan.space},
            tags={"study": name, "recipe": plan.recipe, "scale": plan.scale, "space": plan.space},
            resume=row.id if row else None,
        ) as tracked:
            study.set_user_attr("run_id", tracked.id)
            if missing > 0:
                study.optimize(lambda trial: _attempt(trial, plan, tracked), n_trials=missing)
            _summarize(study, plan, tracked)
    return show(name)


def _alone(name: str) -> AbstractContextManager[None]:
    """One process at a time works on the study."""
    return live.locked(store.home() / "live", f"study-{name}")


def _open(name: str, plan: Plan, force: bool) -> Any:
    """The Optuna study, new or old; a new one starts at the published schedule."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    store.client()  # makes the folder
    where = storage()
    if not force:
        travel.restore(name, where)
    elif name in optuna.get_all_study_names(where):
        optuna.delete_study(study_name=name, storage=where)
    study = optuna.create_study(study_name=name, storage=where, load_if_exists=True)
    held = study.user_attrs.get(travel.PLAN, plan.identity)
    if held != plan.identity:
        raise UserError(
            f"A study searches one space around one recipe. Received: {plan.identity} for study "
            f"{name}, which holds {held}. Take another study name, or --force to start it over."
        )
    study.set_user_attr(travel.PLAN, plan.identity)
    if not study.trials:
        study.enqueue_trial(spaces.published(plan.base))
    _queue_again(study)
    # another seed than the trials already drawn, or a continued study would draw them again
    study.sampler = optuna.samplers.TPESampler(seed=len(study.trials), n_startup_trials=5)
    return study


def _own_run(study: Any) -> history.Row | None:
    """The study's run in MLflow; None for a new study, UserError where it has been deleted."""
    run_id = study.user_attrs.get("run_id")
    row = history.find(run_id) if run_id else None
    if run_id and row is None:
        raise UserError(
            f"A study's run must be in the tracking store. Received: study {study.study_name}, "
            f"whose run {run_id} is not in {store.uri()}. Use --force to start the study over."
        )
    return row


def _queue_again(study: Any) -> None:
    """Trials that were cut short, by a kill or an error, are tried again as they were."""
    import optuna

    state = optuna.trial.TrialState
    for trial in study.get_trials(states=(state.RUNNING,)):
        study.tell(trial.number, state=state.FAIL)
    settled = [trial.params for trial in _finished(study)]
    waiting = study.get_trials(states=(state.WAITING,))
    settled += [trial.system_attrs["fixed_params"] for trial in waiting]
    for trial in study.get_trials(states=(state.FAIL,)):
        wanted = trial.system_attrs.get("fixed_params", {}) | trial.params
        if wanted and wanted not in settled:
            study.enqueue_trial(wanted)
            settled.append(wanted)


def _attempt(trial: Any, plan: Plan, parent: tracking.Run) -> float:
    """Train one trial as a child run; its objective."""
    recipe = spaces.SPACES[plan.space](trial, plan.base)
    title = f"trial {trial.number} {recipe.schedule} {recipe.learning_rate:.3g}"
    try:
        result = run(recipe, EVERY, parent=parent, kind="trial", test=False, title=title)
        value = result.metrics[OBJECTIVE]
    except Diverged:
        value = LOST
    parent.log({OBJECTIVE: value}, trial.number)
    return value


def _finished(study: Any) -> list[Any]:
    return [trial for trial in study.trials if trial.state.name == "COMPLETE"]


def _summarize(study: Any, plan: Plan, tracked: tracking.Run) -> None:
    """Best trial, gain over the published schedule, picture, and all of it, on the study's run."""
    best, finished = study.best_trial, _finished(study)
    start = next(t.value for t in finished if t.params == spaces.published(plan.base))
    tracked.log(
        {
            "trials": len(finished),
            f"best_{OBJECTIVE}": best.value,
            f"baseline_{OBJECTIVE}": start,
            "gain_pct": start - best.value,
        },
        len(finished),
    )
    flags = " ".join(f"--{k.replace('_', '-')} {v}" for k, v in best.params.items())
    tracked.tag("best", flags)
    chart = ui.children_chart(tracked.id, ((OBJECTIVE,), ("learning_rate",)))
    lines = [
        f"**{plan.recipe}** at {plan.scale} scale ({plan.base.source}), {len(finished)} trials",
        f"Validation error: {start:.4g} % as published, {best.value:.4g} % at best.",
        f"Repeat the best: `python -m pipelines run {plan.recipe} --scale {plan.scale} {flags}`",
        f"[The curves of its trials in one chart]({chart})",
    ]
    tracked.tag(store.NOTE, "\n\n".join(lines))
    tracked.figure(figure(finished, start), "figure.png")
    tracked.text(travel.text(study), travel.FILE)


def show(name: str) -> dict[str, Any]:
    """The study as one JSON document; UserError when there is none of that name."""
    import optuna

    store.client()
    if NAME.fullmatch(name) and travel.waiting(name, storage()):
        with _alone(name):
            travel.restore(name, storage())
    names = optuna.get_all_study_names(storage())
    if name not in names:
        raise unknown("A study", name, names)
    row = _own_run(optuna.load_study(study_name=name, storage=storage()))
    if row is None:
        raise UserError(f"A study must have begun. Received: {name}. Start it: tuning run {name}")
    children = history.rows(status=None, **{store.PARENT: row.id})
    return {
        "study": name,
        "run_id": row.id,
        "status": row.status,
        "recipe": row.tags["recipe"],
        "scale": row.tags["scale"],
        "space": row.tags["space"],
        "best": row.tags.get("best"),
        "metrics": {k: v for k, v in sorted(row.metrics.items()) if k != OBJECTIVE},
        "trials": [_trial(c) for c in sorted(children, key=lambda c: c.start_ms)],
        "reused": False,
    }


def _trial(row: history.Row) -> dict[str, Any]:
    error = row.metrics.get(OBJECTIVE) if row.status == "FINISHED" else None
    return {"name": row.name, "status": row.status, OBJECTIVE: error, "run_id": row.id}


def figure(finished: list[Any], baseline: float) -> Any:
    """Validation error against peak rate, one colour a schedule family."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(6, 4), layout="constrained")
    axes = picture.add_subplot(
        xscale="log", xlabel="peak learning rate", ylabel="validation error (%)"
    )
    for family in sorted({trial.params["schedule"] for trial in finished}):
        own = [trial for trial in finished if trial.params["schedule"] == family]
        rates, errors = [t.params["learning_rate"] for t in own], [t.value for t in own]
        axes.plot(rates, errors, "o", label=family)
    axes.axhline(baseline, ls="--", color="grey", label="published schedule")
    axes.legend(fontsize=8)
    return picture
