"""Studies: Optuna chooses, the ordinary `run` trains, MLflow holds study and trials.

The only module that imports Optuna. A study is kept in a database beside MLflow's; started again
it goes on to the number of trials asked for.
"""

from dataclasses import dataclass
from typing import Any

from pipelines import history, live, tracking
from pipelines.errors import Diverged, UserError, unknown
from pipelines.recipes import Recipe, named
from pipelines.run import run
from tuning import spaces

OBJECTIVE = "val_error_pct"  # never the test error
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
        named(self.recipe, self.scale)

    @property
    def base(self) -> Recipe:
        return named(self.recipe, self.scale)


def storage() -> str:
    """The studies' database, beside MLflow's."""
    return f"sqlite:///{tracking.home() / 'optuna.db'}"


def search(name: str, plan: Plan, trials: int, force: bool = False) -> dict[str, Any]:
    """Bring the study to that many finished trials and return its document.

    Trials of a killed process are tried again with the same parameters. `force` starts over.
    """
    if trials < 1:
        raise UserError(f"trials must be >= 1. Received: trials={trials}. Set --trials 1 or more.")
    with live.locked(tracking.home() / "live", f"study-{name}"):
        study = _open(name, plan, force)
        missing = trials - len(_finished(study))
        if missing <= 0:
            return show(name) | {"reused": True}
        parent = None if force else _parent(name)
        with tracking.tracked(
            name,
            experiment="tuning",
            kind="study",
            params=plan.base.flat() | {"space": plan.space},
            tags={"study": name, "recipe": plan.recipe, "scale": plan.scale, "space": plan.space},
            resume=parent.id if parent else None,
        ) as tracked:
            study.optimize(lambda trial: _attempt(trial, plan, tracked), n_trials=missing)
            _summarize(study, plan, tracked)
    return show(name)


def _open(name: str, plan: Plan, force: bool) -> Any:
    """The Optuna study, new or old; a new one starts at the published schedule."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    where = storage()
    if force and name in optuna.get_all_study_names(where):
        optuna.delete_study(study_name=name, storage=where)
    study = optuna.create_study(study_name=name, storage=where, load_if_exists=True)
    wanted = {"recipe": plan.recipe, "scale": plan.scale, "space": plan.space}
    held = study.user_attrs.get("plan", wanted)
    if held != wanted:
        raise UserError(
            f"A study searches one space. Received: {wanted} for study {name}, which holds {held}. "
            "Take another study name, or --force to start it over."
        )
    study.set_user_attr("plan", wanted)
    if not study.trials:
        study.enqueue_trial(spaces.published(plan.base))
    _queue_again(study)
    # another seed than the trials already drawn, or a continued study would draw them again
    study.sampler = optuna.samplers.TPESampler(seed=len(study.trials), n_startup_trials=5)
    return study


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
        if trial.params and trial.params not in settled:
            study.enqueue_trial(trial.params)
            settled.append(trial.params)


def _attempt(trial: Any, plan: Plan, parent: tracking.Run) -> float:
    """Train one trial as a child run; its objective."""
    recipe = spaces.SPACES[plan.space](trial, plan.base)
    title = f"trial {trial.number} {recipe.schedule} {recipe.learning_rate:.3g}"
    try:
        result = run(recipe, parent=parent, kind="trial", force=True, test=False, title=title)
        value = result.metrics[OBJECTIVE]
    except Diverged:
        value = LOST
    parent.log({OBJECTIVE: value}, trial.number)
    return value


def _finished(study: Any) -> list[Any]:
    return [trial for trial in study.trials if trial.state.name == "COMPLETE"]


def _parent(name: str) -> history.Row | None:
    """The study's own run, of whatever status, where it has one."""
    states = ("FINISHED", "KILLED", "FAILED")
    found = [row for s in states for row in history.rows(s, kind="study", study=name)]
    return max(found, key=lambda row: row.start_ms, default=None)


def _summarize(study: Any, plan: Plan, tracked: tracking.Run) -> None:
    """Best trial, gain over the published schedule, and the picture, on the study's run."""
    best, first = study.best_trial, _finished(study)[0]
    tracked.log(
        {
            "trials": len(_finished(study)),
            f"best_{OBJECTIVE}": best.value,
            f"baseline_{OBJECTIVE}": first.value,
            "gain_pct": first.value - best.value,
        }
    )
    flags = " ".join(f"--{k.replace('_', '-')} {_short(v)}" for k, v in best.params.items())
    tracked.tag("best", flags)
    repeat = f"python -m pipelines run {plan.recipe} --scale {plan.scale} {flags}"
    tracked.tag("mlflow.note.content", f"Best of the study: `{repeat}`")
    tracked.figure(figure(study), "figure.png")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def show(name: str) -> dict[str, Any]:
    """The study as one JSON document; UserError when there is none of that name."""
    row = _parent(name)
    if row is None:
        rows = history.rows(kind="study")
        raise unknown("A study", name, {row.tags["study"] for row in rows})
    children = history.rows(**{"mlflow.parentRunId": row.id})
    return {
        "study": name,
        "run_id": row.id,
        "recipe": row.tags["recipe"],
        "space": row.tags["space"],
        "best": row.tags.get("best"),
        "metrics": {k: v for k, v in sorted(row.metrics.items()) if k != OBJECTIVE},
        "trials": [
            {"name": c.name, OBJECTIVE: c.metrics.get(OBJECTIVE), "run_id": c.id}
            for c in sorted(children, key=lambda c: c.start_ms)
        ],
        "reused": False,
    }


def figure(study: Any) -> Any:
    """Validation error against peak rate, one colour a schedule family."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(6, 4), layout="constrained")
    axes = picture.add_subplot(
        xscale="log", xlabel="peak learning rate", ylabel="validation error (%)"
    )
    trials = _finished(study)
    for family in sorted({trial.params["schedule"] for trial in trials}):
        own = [trial for trial in trials if trial.params["schedule"] == family]
        axes.plot(
            [t.params["learning_rate"] for t in own], [t.value for t in own], "o", label=family
        )
    axes.axhline(trials[0].value, ls="--", color="grey", label="published schedule")
    axes.legend(fontsize=8)
    return picture
