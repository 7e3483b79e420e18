"""Studies carried from storage to storage, and with their runs: trials, no states of samplers.

The run of a finished study in MLflow has the study as an artifact, a journal of Optuna's. MLflow's
runs can be carried to another machine; where a storage lacks a study, it is copied from its run.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.errors import UserError, unknown, without_password
from pipelines.tracking import history, store
from tuning.optuna_log import silence
from tuning.plan import PLAN, has_plan
from tuning.storage import storage
from tuning.storage.leader import LEADER

FILE = "study.journal"
RUN = "run_id"  # attribute of a study; of one that is being copied from its run: None
STUDY_KEY = "study_key"  # attribute of a study and tag of its run: no other study has its value
IDENTITY = (PLAN, RUN, STUDY_KEY)  # attributes that tell studies of one name apart


def load_if_there(name: str, connected: Any) -> Any:
    """Return the study of that name in a storage; None where there is none.

    Raise UserError for another program's: nothing of ours goes into it, and no --force deletes it.
    """
    import optuna

    if name not in optuna.get_all_study_names(connected):
        return None
    study = optuna.load_study(study_name=name, storage=connected)
    if not has_plan(study) and (study.user_attrs or study.get_trials(deepcopy=False)):
        raise UserError(
            f"A study must be one of this project. Received: {name}, which has no plan of ours: "
            "another program has made it, and it stays as it is. Take another study name."
        )
    return study


def delete_if_there(name: str, connected: Any) -> None:
    """Delete the study of that name in a storage, if it is there."""
    import optuna

    if name in optuna.get_all_study_names(connected):
        optuna.delete_study(study_name=name, storage=connected)


def copy(source: str, names: Sequence[str], where: str) -> list[str]:
    """Copy studies, all if none is named, into the storage `where`; return those it lacked.

    Print which are left out, for this project has not made them.
    """
    import optuna

    source = storage.resolve_url(source)
    if _is_lost(source):
        file = source.removeprefix(storage.JOURNAL)
        raise UserError(f"The file to copy must be there. Received: {file}. Name another.")
    origin, target = storage.connect(source), storage.connect(where)
    known = optuna.get_all_study_names(origin)
    for name in names:
        if load_if_there(name, origin) is None:
            raise unknown(
                f"A study of {without_password(source)}", name, known, "python -m tuning list"
            )
    return [study.study_name for study in ours(origin, names or known) if _copy(study, target)]


def ours(connected: Any, names: Sequence[str]) -> Iterator[Any]:
    """Yield those of the studies that this project has made; print that others are left out."""
    import optuna

    for name in names:
        study = optuna.load_study(study_name=name, storage=connected)
        if has_plan(study):
            yield study
        else:
            print(f"{name} is left out: this project has not made it.", file=sys.stderr)


def _is_lost(place: str) -> bool:
    """Return whether a place is a journal that is not there."""
    return (
        place.startswith(storage.JOURNAL) and not Path(place.removeprefix(storage.JOURNAL)).exists()
    )


def _copy(old: Any, target: Any) -> bool:
    """Copy a study unless the target has as much of it; raise UserError for another of its name."""
    name = old.study_name
    if new := load_if_there(name, target):
        if any(old.user_attrs.get(key) != new.user_attrs.get(key) for key in IDENTITY):
            raise UserError(
                f"A storage has one study of a name. Received: {name}, which is another study "
                "where it comes from. Leave it out: name those to copy; or copy it elsewhere."
            )
        if _progress(new) >= _progress(old):
            return False
        delete_if_there(name, target)  # a kill has cut its copying short
    _copy_trials(old, target)
    return True


def _copy_trials(study: Any, target: Any) -> Any:
    """Copy a study as `optuna.copy_study` does, but for what its sampler kept, and return the copy.

    That may be a pickle, which another program would read; every sampler goes on from the trials.
    """
    import optuna

    name, directions = study.study_name, study.directions
    copied = optuna.create_study(study_name=name, storage=target, directions=directions)
    if study.metric_names:
        with silence():
            copied.set_metric_names(study.metric_names)
    for key in sorted(study.user_attrs, key=lambda key: key != PLAN):  # first what makes it ours
        copied.set_user_attr(key, study.user_attrs[key])
    for trial in study.get_trials():
        kept = {k: v for k, v in trial.system_attrs.items() if ":optimizer" not in k}
        trial.system_attrs = kept
        copied.add_trial(trial)
    return copied


def _progress(study: Any) -> tuple[int, int]:
    """Return how many trials have ended, and how many there are."""
    trials = study.get_trials(deepcopy=False)
    return sum(trial.state.is_finished() for trial in trials), len(trials)


def to_journal(study: Any) -> str:
    """Return the study as a journal of its own, bound to no run and led by no process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        copied = _copy_trials(study, storage.open_journal(path))
        for key in (RUN, LEADER):
            copied.set_user_attr(key, None)
        return path.read_text()


def find_finished_run(name: str, where: str) -> history.Row | None:
    """Return the newest finished run of a study that the storage lacks; None if it is there.

    Raise UserError where the study is in another storage: a second one would part from it.
    """
    study = load_if_there(name, storage.connect(where))
    if study and has_plan(study) and study.user_attrs.get(RUN, "") is not None:
        return None
    row = next(iter(history.rows_with_evidence(kind="study", study=name)), None)
    place = str(row.tags.get("storage", "")) if row and store.ORIGIN not in row.tags else ""
    if place and place != without_password(where) and not _is_lost(place):
        raise UserError(
            f"A study is kept in one storage. Received: {without_password(where)} for study "
            f"{name}, which is in {place}. Name that with --storage or OPTUNA_STORAGE, or take the "
            f"study over: python -m tuning copy {place} {name}"
        )
    return row


def restore(name: str, where: str) -> None:
    """Copy the study from the run that carries it, if the storage lacks it, and bind it to that.

    Call it under the study's lock. Raise UserError for a damaged artifact.
    """
    row = find_finished_run(name, where)
    carried = store.artifact(row.id, FILE) if row else None
    if row is None or carried is None:
        return
    target = storage.connect(where)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        path.write_bytes(carried)
        delete_if_there(name, target)  # what a kill has left of an earlier copy
        try:
            study = load_if_there(name, storage.open_journal(path))
            dict(study.user_attrs[PLAN])
            copied = _copy_trials(study, target)
        except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
            delete_if_there(name, target)
            raise UserError(
                f"The {FILE} of a study's run must be as it was written. Received: that of study "
                f"{name}, run {row.id}: {error!r}. Start the study over: python -m tuning run "
                f"{name} --force"
            ) from error
    copied.set_user_attr(RUN, row.id)
