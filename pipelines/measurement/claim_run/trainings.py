"""The trainings of a claim's run: which they are, and what the claim calls them."""

from collections.abc import Mapping

from pipelines.measurement.plan import MeasurementPlan
from pipelines.tracking import history, store


def of_run(run_id: str) -> list[history.Row]:
    """Return the trainings below a claim's run, and those of earlier runs that it names."""
    rows = history.rows_with_evidence(None, kind="training", **{store.PARENT: run_id})
    run = history.find(run_id)
    reused = store.reused_ids(run.tags) if run else []
    return [*rows, *(row for each in reused if (row := history.find(each)))]


def arm_name(tags: Mapping[str, str], arm_names: Mapping[str, str]) -> str:
    """Return what a claim calls a training, else the name under which it was trained, if any.

    A training that two claims share bears the name of the first.
    """
    return arm_names.get(tags.get("fingerprint", "")) or tags.get(store.ARM, "")


def name_arms(plan: MeasurementPlan, run_id: str) -> None:
    """Tag the trainings of a run that have no name yet with what the claim calls them."""
    arms = plan.arm_names
    for row in of_run(run_id) if plan.claim.trains and len({*arms.values()}) > 1 else ():
        if store.ARM not in row.tags and row.tags.get("fingerprint") in arms:
            store.client().set_tag(row.id, store.ARM, arms[row.tags["fingerprint"]])
