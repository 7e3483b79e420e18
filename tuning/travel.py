"""Studies that travel: all of an Optuna study as an artifact of its run, and made anew from it.

MLflow's runs can be carried to another machine, Optuna's database stays where it is.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from pipelines import history, store
from pipelines.errors import UserError
from tuning import storage
from tuning.leader import LEADER

FILE = "study.json"
PLAN = "plan"  # an attribute that a study gets last: without it, it is not whole


def text(study: Any) -> str:
    """The study as JSON: its attributes, its plan among them, and every trial."""
    document = {
        "study": study.study_name,
        "directions": [direction.name for direction in study.directions],
        "user_attrs": {k: v for k, v in study.user_attrs.items() if k != LEADER},  # of one place
        "trials": [_packed(trial) for trial in study.trials],
    }
    return json.dumps(document, indent=1) + "\n"


def waiting(name: str, where: str) -> history.Row | None:
    """The run to make a study from that the storage lacks: the newest finished one, if any."""
    import optuna

    there = storage.connect(where)
    known = name in optuna.get_all_study_names(there)
    if known and PLAN in optuna.load_study(study_name=name, storage=there).user_attrs:
        return None
    row = next(iter(history.everyones(kind="study", study=name)), None)
    _refuse_elsewhere(name, row, where)
    return row


def _refuse_elsewhere(name: str, row: history.Row | None, where: str) -> None:
    """UserError where a study is kept in another storage, which would otherwise be forked."""
    kept = row.tags.get("storage") if row and store.ORIGIN not in row.tags else None
    lost = any(
        str(kept).startswith(start) and not Path(str(kept).removeprefix(start)).exists()
        for start in storage.FILES
    )
    if kept and kept != storage.shown(where) and not lost:
        raise UserError(
            f"A study is kept in one storage. Received: {storage.shown(where)} for study {name}, "
            f"which is in {kept}. Give --storage accordingly, or set OPTUNA_STORAGE."
        )


def restore(name: str, where: str) -> None:
    """Make the study anew, bound to the run that carries it; nothing where none is waiting.

    Call it under the study's lock. UserError for a damaged artifact.
    """
    import optuna

    row = waiting(name, where)
    carried = store.artifact(row.id, FILE) if row else None
    if row is None or carried is None:
        return
    there = storage.connect(where)
    try:
        attributes, rehearsed = _rehearsed(json.loads(carried))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"The {FILE} of a study's run must be as it was written. Received: that of study "
            f"{name}, run {row.id}: {error!r}. Start "
            f"the study over: python -m tuning run {name} --force"
        ) from error
    if name in optuna.get_all_study_names(there):  # a kill has cut its restoration short
        optuna.delete_study(study_name=name, storage=there)
    study = optuna.create_study(study_name=name, storage=there, directions=rehearsed.directions)
    study.add_trials(rehearsed.trials)
    plan = attributes.pop(PLAN)
    for key, value in (attributes | {"run_id": row.id, PLAN: plan}).items():
        study.set_user_attr(key, value)


def _rehearsed(document: Any) -> tuple[dict[str, Any], Any]:
    """The study's attributes and, in memory, the study: what is wrong with a document raises."""
    import optuna

    study = optuna.create_study(directions=[d.lower() for d in document["directions"]])
    study.add_trials([_unpacked(trial) for trial in document["trials"]])
    numbers = [trial["number"] for trial in document["trials"]]
    if numbers != list(range(len(numbers))):
        raise ValueError(f"its trials are numbered {numbers}")
    attributes = dict(document["user_attrs"])
    attributes[PLAN] = dict(attributes[PLAN])
    return attributes, study


def _packed(trial: Any) -> dict[str, Any]:
    from optuna.distributions import distribution_to_json

    return {
        "number": trial.number,
        "state": trial.state.name,
        "params": trial.params,
        "distributions": {k: distribution_to_json(d) for k, d in trial.distributions.items()},
        "values": trial.values,
        "user_attrs": trial.user_attrs,
        "system_attrs": trial.system_attrs,
        "intermediate_values": trial.intermediate_values,
        "start": _written(trial.datetime_start),
        "complete": _written(trial.datetime_complete),
    }


def _unpacked(row: Any) -> Any:
    from optuna.distributions import json_to_distribution
    from optuna.trial import TrialState, create_trial

    trial = create_trial(
        state=TrialState[row["state"]],
        values=row["values"],
        params=row["params"],
        distributions={k: json_to_distribution(d) for k, d in row["distributions"].items()},
        user_attrs=row["user_attrs"],
        system_attrs=row["system_attrs"],
        intermediate_values={int(k): v for k, v in row["intermediate_values"].items()},
    )
    trial.datetime_start, trial.datetime_complete = _read(row["start"]), _read(row["complete"])
    return trial


def _written(when: datetime | None) -> str | None:
    return when.isoformat() if when else None


def _read(when: str | None) -> datetime | None:
    return datetime.fromisoformat(when) if when else None
