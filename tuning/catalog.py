"""The studies there are: their names, their runs, what they have come to.

Each is in Optuna's storage, its run in MLflow. A study that the storage lacks is copied from its
finished run.
"""

import re
import time
from contextlib import AbstractContextManager
from typing import Any

from pipelines.errors import UserError, unknown
from pipelines.runtime import files
from pipelines.tracking import history, store
from tuning.analysis import goals, outcome, summary
from tuning.plan import GOAL, PLAN, StudyPlan, has_plan
from tuning.storage import copies, leader, storage

EXPERIMENT = "tuning"  # its name in MLflow
NAME = re.compile(r"[\w.-]+")
WAIT_FOR_RUN_S = 30.0  # a leader may still be making the study's run


def lock_study(name: str) -> AbstractContextManager[object]:
    """Let one process of this machine at a time open the study; UserError for no name of one."""
    if not NAME.fullmatch(name):
        raise UserError(
            f"A study name has letters, digits, '.', '_' and '-' only. Received: {name!r}. "
            "Take another name."
        )
    return files.lock(store.home() / "live", f"study-{name}")


def load(name: str, where: str) -> Any:
    """Return the study of that name, whole; raise UserError, which lists them, without one."""
    import optuna

    connected = storage.connect(where)
    study = copies.load_if_there(name, connected)
    if study is None:
        raise unknown(
            "A study", name, optuna.get_all_study_names(connected), "python -m tuning list"
        )
    if not has_plan(study):
        raise UserError(
            f"A study must be whole. Received: {name}, whose beginning was cut short. Start it "
            f"again: python -m tuning run {name}"
        )
    return study


def find_run(study: Any) -> history.Row | None:
    """Return the study's run in MLflow, None for a new one; raise UserError if it is not here."""
    run_id = study.user_attrs.get(copies.RUN)
    if run_id is None:  # a kill may have come before the study knew it
        rows = history.rows(
            None, kind="study", **{copies.STUDY_KEY: study.user_attrs.get(copies.STUDY_KEY, "none")}
        )
        return rows[0] if rows else None
    row = history.find(run_id)
    if row is None:
        raise UserError(
            f"A study's run must be in the tracking store. Received: study {study.study_name}, "
            f"whose run {run_id} is not in {store.display_uri()}. Set MLFLOW_TRACKING_URI to the "
            "store it began with, or use --force to start the study over."
        )
    return row


def describe(name: str, where: str | None = None) -> dict[str, Any]:
    """Return the study as one JSON document; raise UserError if none has that name."""
    where = storage.resolve_url(where)
    if NAME.fullmatch(name) and copies.find_finished_run(name, where):
        with lock_study(name):
            copies.restore(name, where)
    study = load(name, where)
    return summary.document(study, StudyPlan.from_study(study), wait_for_run(study))


def wait_for_run(study: Any) -> history.Row:
    """Return the study's run, which its leader may be making; UserError where there is none."""
    end = time.monotonic() + WAIT_FOR_RUN_S
    while (
        (row := find_run(study)) is None and leader.living_leader(study) and time.monotonic() < end
    ):
        time.sleep(0.5)
    if row is None:
        raise UserError(
            f"A study must have begun. Received: {study.study_name}. Start it: python -m tuning "
            f"resume {study.study_name}"
        )
    return row


def list_studies(where: str | None = None) -> list[dict[str, Any]]:
    """Return of every study its name, finished trials, state and what it searches.

    All of it is read from the storage: MLflow, which takes seconds to open, is not asked.
    """
    import optuna

    connected = storage.connect(storage.resolve_url(where))
    rows = []
    for study in copies.ours(connected, sorted(optuna.get_all_study_names(connected))):
        plan = study.user_attrs[PLAN]
        counts = outcome.count_trials(study.get_trials(deepcopy=False))
        rows.append(
            {
                "study": study.study_name,
                "trials": sum(counts.values()),
                **counts,
                "status": _find_status(study),
                "about": f"{plan['recipe']} {plan['scale']}, {plan['space']}",
                "run_id": study.user_attrs.get(copies.RUN),
            }
        )
    return rows


def _find_status(study: Any) -> str:
    """Return where a study stands, by its storage."""
    if leader.living_leader(study):
        return "RUNNING"
    if GOAL not in study.user_attrs:
        return "NOT BEGUN"
    return "FINISHED" if goals.is_reached(study) else "NOT FINISHED"
