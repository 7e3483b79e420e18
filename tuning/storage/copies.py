"""Studies carried from storage to storage, and with their runs: trials, no states of samplers.

The run of a finished study in MLflow has the study as an artifact, a journal of Optuna's. MLflow's
runs can be carried to another machine; where a storage lacks a study, it is copied from its run.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipelines.errors import UserError, unknown, without_password
from pipelines.tracking import history, store
from tuning import optuna_log
from tuning.plan import PLAN
from tuning.storage import storage
from tuning.storage.leader import LEADER

FILE = "study.journal"
RUN = "run_id"  # attribute of a study; of one that is being copied from its run: None


def load_if_there(name: str, connected: Any) -> Any:
    """Return the study of that name in a storage; None where there is none."""
    import optuna

    exists = name in optuna.get_all_study_names(connected)
    return optuna.load_study(study_name=name, storage=connected) if exists else None


def delete_if_there(name: str, connected: Any) -> None:
    """Delete the study of that name in a storage, if it is there."""
    import optuna

    if name in optuna.get_all_study_names(connected):
        optuna.delete_study(study_name=name, storage=connected)


def copy(source: str, names: Sequence[str], where: str) -> list[str]:
    """Copy studies, all if none is named, into the storage `where`; return those it lacked."""
    import optuna

    source = storage.resolve_url(source)
    if _is_lost(source):
        file = source.removeprefix(storage.JOURNAL)
        raise UserError(f"The file to copy must be there. Received: {file}. Name another.")
    origin, target = storage.connect(source), storage.connect(where)
    known = optuna.get_all_study_names(origin)
    for name in names:
        if name not in known:
            raise unknown(
                f"A study of {without_password(source)}", name, known, "python -m tuning list"
            )
    return [name for name in names or known if _copy(name, origin, target)]


def _is_lost(place: str) -> bool:
    """Return whether a place is a journal that is not there."""
    return (
        place.startswith(storage.JOURNAL) and not Path(place.removeprefix(storage.JOURNAL)).exists()
    )


def _copy(name: str, origin: Any, target: Any) -> bool:
    """Copy a study unless the target has as much of it; raise UserError for another of its name."""
    import optuna

    if new := load_if_there(name, target):
        old = optuna.load_study(study_name=name, storage=origin)
        if old.user_attrs.get(RUN) != new.user_attrs.get(RUN):
            raise UserError(
                f"A storage has one study of a name. Received: {name}, which is another study "
                "where it comes from. Delete one of them, or leave it out: name those to copy."
            )
        if _progress(new) >= _progress(old):
            return False
        optuna.delete_study(study_name=name, storage=target)  # a kill has cut its copying short
    _copy_trials(name, origin, target)
    return True


def _copy_trials(name: str, origin: Any, target: Any) -> None:
    """Copy a study as `optuna.copy_study` does, but for what its sampler kept there.

    That may be a pickle, which another program would read; every sampler goes on from the trials.
    """
    import optuna

    study = optuna.load_study(study_name=name, storage=origin)
    copied = optuna.create_study(study_name=name, storage=target, directions=study.directions)
    with optuna_log.silence():
        if study.metric_names:
            copied.set_metric_names(study.metric_names)
    for key, value in study.user_attrs.items():
        copied.set_user_attr(key, value)
    for trial in study.get_trials():
        kept = {k: v for k, v in trial.system_attrs.items() if ":optimizer" not in k}
        trial.system_attrs = kept
        target.create_new_trial(copied._study_id, template_trial=trial)


def _progress(study: Any) -> tuple[int, int]:
    """Return how many trials have ended, and how many there are."""
    trials = study.get_trials(deepcopy=False)
    return sum(trial.state.is_finished() for trial in trials), len(trials)


def to_journal(study: Any) -> str:
    """Return the study as a journal of its own, bound to no run and led by no process."""
    import optuna

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        with optuna_log.silence():
            origin = storage.open_journal(path)
        name = study.study_name
        _copy_trials(name, study._storage, origin)
        copied = optuna.load_study(study_name=name, storage=origin)
        for key in (RUN, LEADER):
            copied.set_user_attr(key, None)
        return path.read_text()


def find_finished_run(name: str, where: str) -> history.Row | None:
    """Return the newest finished run of a study that the storage lacks; None if it is there."""
    study = load_if_there(name, storage.connect(where))
    if study and PLAN in study.user_attrs and study.user_attrs.get(RUN, "") is not None:
        return None
    row = next(iter(history.rows_with_evidence(kind="study", study=name)), None)
    _check_not_elsewhere(name, row, where)
    return row


def _check_not_elsewhere(name: str, row: history.Row | None, where: str) -> None:
    """Raise UserError where the study is in another storage: a second one would part from it."""
    place = str(row.tags.get("storage", "")) if row and store.ORIGIN not in row.tags else ""
    if place and place != without_password(where) and not _is_lost(place):
        raise UserError(
            f"A study is kept in one storage. Received: {without_password(where)} for study "
            f"{name}, which is in {place}. Name that with --storage or OPTUNA_STORAGE, or take the "
            f"study over: python -m tuning copy {place} {name}"
        )


def restore(name: str, where: str) -> None:
    """Copy the study from the run that carries it, if the storage lacks it, and bind it to that.

    Call it under the study's lock. Raise UserError for a damaged artifact.
    """
    import optuna

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
            with optuna_log.silence():
                origin = storage.open_journal(path)
            dict(optuna.load_study(study_name=name, storage=origin).user_attrs[PLAN])
            _copy_trials(name, origin, target)
        except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
            delete_if_there(name, target)
            raise UserError(
                f"The {FILE} of a study's run must be as it was written. Received: that of study "
                f"{name}, run {row.id}: {error!r}. Start the study over: python -m tuning run "
                f"{name} --force"
            ) from error
    optuna.load_study(study_name=name, storage=target).set_user_attr(RUN, row.id)
