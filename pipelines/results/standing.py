"""How the runs of a claim stand to each other, as a tag that MLflow's table sorts and shows.

Of every claim first the run that counts on the scoreboard, yours and the project's, then the
papers' numbers, then runs with other seeds, settings or scales. What papers report of a claim that
has no run here is tagged apart.
"""

from collections.abc import Iterator

from pipelines.results import published, reference_runs, scoreboard
from pipelines.tracking import history, store


def mark() -> None:
    """Tag the runs of claims, and of the papers beside them, by how they stand now."""
    for row, tags in _standings():
        for key, value in tags.items():
            if value and row.tags.get(key) != value:
                store.client().set_tag(row.id, key, value)
            elif not value and key in row.tags:
                store.client().delete_tag(row.id, key)


def _standings() -> Iterator[tuple[history.Row, dict[str, str]]]:
    """Yield the runs and what their tags must be; an empty one must not be there."""
    yours = {row.id for row in scoreboard.own_results().values()}
    projects = {str(document.get("run_id")) for document in published.read_claims().values()}
    claims = history.rows_with_evidence(None, kind="claim")
    measured = {row.tags["claim"] for row in claims}
    for row in claims:
        counts = store.YOURS if row.id in yours else store.UNCOUNTED
        if row.origin in projects:
            counts = store.PROJECTS
        yield row, {store.STANDING: f"{row.tags['claim']} {counts}"}
    for row in history.rows(kind=reference_runs.KIND):
        name = row.tags["claim"]
        standing, alone = (f"{name} {store.PAPERS}", "") if name in measured else ("", name)
        yield row, {store.STANDING: standing, store.PAPERS_ALONE: alone}
