"""The scoreboard: of every claim what the project has measured beside what was measured here.

The project's results are read from the bundles of its evidence, yours from MLflow. Verdicts are
given anew, by the rules of today, from the numbers of every seed.
"""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from pipelines.errors import UserError, disk_error
from pipelines.measurement import claim_catalog
from pipelines.measurement.claim_run import json_document
from pipelines.measurement.claim_run.json_document import JsonDocument
from pipelines.measurement.claim_view import ClaimView
from pipelines.measurement.plan import runs_that_count, stated_plan_of
from pipelines.measurement.verdict import FORMERLY, NOT_JUDGED
from pipelines.results import counts, markdown, published, reference_runs, regressions, web_page
from pipelines.results.evidence import recorded
from pipelines.results.evidence.recorded import RecordedRun
from pipelines.results.published import FIGURES, FILE
from pipelines.runtime import places
from pipelines.tracking import history, store, tracked_run


@dataclass(frozen=True)
class Result:
    """A finished run of a claim."""

    run: history.Row
    judged: JsonDocument
    """The claim as `run --json` prints it, by the rules of today."""
    recorded: RecordedRun | None = None
    """The run in the bundles of the evidence; None of a run in MLflow."""

    def document(self) -> dict[str, Any]:
        """Return the claim as `run --json` prints it; of networks with what they trained on.

        That of the project has the name of its bundle.
        """
        bundle = {"bundle": self.recorded.bundle} if self.recorded else {}
        if claim_catalog.load(self.run.tags["claim"]).recipes is None:
            return {**self.judged, **bundle}
        trained = self.recorded.trainings if self.recorded else history.trainings_of(self.run.id)
        devices = {_name_device(each.tags) for each in trained if "device" in each.tags}
        return {**self.judged, **bundle, "devices": sorted(devices)}

    def figure(self, published_run: str | None) -> bytes | None:
        """Return its figure as PNG: the project's as it is published, yours as it was recorded."""
        if self.recorded is None:
            return store.artifact(self.run.id, "figure.png")
        file = places.published_folder() / FIGURES / f"{self.run.tags['claim']}.png"
        is_published = self.run.id == published_run and file.is_file()
        return file.read_bytes() if is_published else self.project_figure()

    def project_figure(self) -> bytes | None:
        """Return the figure of a run of the evidence as PNG.

        Networks take too long to be trained again for a better figure: theirs is drawn anew.
        """
        recorded = self.recorded
        plan = stated_plan_of(self.run)
        if not (recorded and recorded.measured and plan and plan.claim.recipes):
            return recorded.picture if recorded else None
        picture = io.BytesIO()
        recorded.draw(plan).savefig(picture, **tracked_run.FIGURE_STYLE)
        return picture.getvalue()


def _name_device(tags: Mapping[str, str]) -> str:
    """Return `1 NVIDIA H200`, or `1 CPU (AMD EPYC)`, as the tags of a training have it."""
    device = tags["device"].partition(",")[0]
    return f"{device} ({tags['cpu']})" if device.endswith("CPU") and "cpu" in tags else device


@dataclass(frozen=True)
class Entry:
    """A claim with its run that counts, at the largest scale: the project's, and yours."""

    name: str
    project: Result | None = None
    yours: Result | None = None
    begun: Result | None = None
    """The project's run of trained networks that lacks seeds, at a larger scale than decided."""

    @property
    def shown(self) -> Result | None:
        """Return your result, else the project's, else None."""
        return self.yours or self.project

    @property
    def verdict(self) -> str:
        return self.view.verdict

    @cached_property
    def view(self) -> ClaimView:
        return ClaimView(self.document())

    def document(self) -> dict[str, Any]:
        """Return the claim as `run --json` prints it, yours if there is one, and the project's."""
        project = self.project.document() if self.project else None
        owner = "you" if self.yours else "project" if self.project else None
        shown = self.shown.document() if self.shown else json_document.stated_document(self.name)
        document = {**shown, "recorded_by": owner, "project": project}
        if self.project and self.yours:
            rows = (
                replace(each.run, tags={**each.run.tags, "verdict": each.judged["verdict"]})
                for each in (self.project, self.yours)
            )
            document["agreement"] = regressions.agreement(*rows)
        return document


def entries(name: str | None = None) -> list[Entry]:
    """Return one entry a claim, by name, or that of one claim."""
    rows = own_results(**({"claim": name} if name else {}))
    yours = {n: Result(row, json_document.rejudged_document(row)) for n, row in rows.items()}
    names = [name] if name else claim_catalog.names()
    return [replace(project_entry(each), yours=yours.get(each)) for each in names]


def project_entry(name: str) -> Entry:
    """Return what the evidence holds of a claim at its largest scale, every byte of it checked."""
    evidence = recorded.read(name)
    project, begun = (
        Result(run.row, run.judged_document, run) if run else None
        for run in (evidence.deciding, evidence.begun)
    )
    if begun:
        lacking = f"none yet: {begun.judged['seeds']} of {claim_catalog.load(name).seeds} seeds"
        begun = replace(begun, judged={**begun.judged, "verdict": lacking})
    return Entry(name, project, begun=begun)


def own_results(**tags: str) -> dict[str, history.Row]:
    """Return by claim the run that counts of those that were measured here."""
    return runs_that_count(history.rows(kind="claim", **tags))


def mark_standings() -> None:
    """Tag the runs of claims by how they stand to each other, as MLflow's table sorts and shows it.

    Of every claim first the run that counts, yours and the project's, then the papers' numbers,
    then runs with other seeds, settings or scales. What papers report of a claim that has no run
    here is tagged apart.
    """
    for row, tags in _standings():
        for key, value in tags.items():
            if value and row.tags.get(key) != value:
                store.client().set_tag(row.id, key, value)
            elif not value and key in row.tags:
                store.client().delete_tag(row.id, key)


def _standings() -> Iterator[tuple[history.Row, dict[str, str]]]:
    """Yield the runs and what their tags must be; an empty one must not be there."""
    yours = {row.id for row in own_results().values()}
    projects = {str(document.get("run_id")) for document in published.read_claims().values()}
    claims = history.rows_with_evidence(None, kind="claim")
    measured = {row.tags["claim"] for row in claims}
    for row in claims:
        counts = store.YOURS if row.id in yours else store.UNCOUNTED
        if row.origin in projects:
            counts = store.PROJECTS
        # A verdict in the words of earlier versions is written in those of today.
        renamed = {"verdict": NOT_JUDGED} if row.tags.get("verdict") == FORMERLY else {}
        yield row, {store.STANDING: f"{row.tags['claim']} {counts}", **renamed}
    for row in history.rows(kind=reference_runs.KIND):
        name = row.tags["claim"]
        standing, alone = (f"{name} {store.PAPERS}", "") if name in measured else ("", name)
        yield row, {store.STANDING: standing, store.PAPERS_ALONE: alone}


def imported_result(name: str) -> history.Row | None:
    """Return the project's result as this store has imported it."""
    project = project_entry(name).project
    rows = history.rows_with_evidence(kind="claim", claim=name) if project else []
    return next((row for row in rows if project and row.origin == project.run.id), None)


def entry_of_run(document: Mapping[str, Any]) -> Entry:
    """Return the entry of a run that was just shown or measured, beside the project's."""
    row, name = history.row(document["run_id"]), str(document["claim"])
    result = Result(row, document)
    return Entry(name, result) if row.is_project else replace(project_entry(name), yours=result)


def latest_studies() -> list[history.Row]:
    """Return the newest run of every tuning study, sorted by name."""
    newest = {row.tags["study"]: row for row in reversed(history.rows(kind="study"))}
    return [newest[name] for name in sorted(newest)]


def write(folder: Path | None = None) -> dict[str, Any]:
    """Write RESULTS.md, results.json, figures/ and results.html and return the JSON document.

    By default the folder is report/ beside the database.
    """
    folder, board = folder or store.home() / "report", entries()
    with _open_folder(folder):
        runs = {name: each.get("run_id") for name, each in published.read_claims().items()}
        figures = _write_figures(
            folder / FIGURES,
            {e.name: e.shown.figure(runs.get(e.name)) if e.shown else None for e in board},
        )
        studies = [
            {"study": row.name, "run_id": row.id, "metrics": row.metrics}
            | {key: row.tags[key] for key in ("recipe", "best")}
            for row in latest_studies()
        ]
        document = {**results_document(board), "studies": studies}
        links = {entry.name: f"results.html#{entry.name}" for entry in board}
        written = _write_results(document, links, folder)
        page = folder / "results.html"
        page.write_text(web_page.render_page(document, figures))
    return document | written | {"page": str(page)}


def publish(folder: Path | None = None) -> dict[str, Any]:
    """Write RESULTS.md, results.json and figures/ of the project's evidence alone; return its JSON.

    By default the folder is the checkout. Raise UserError, before anything is written, if there is
    none, or no evidence.
    """
    places.require_checkout("report --publish")
    folder = folder or places.ROOT
    board = [project_entry(name) for name in claim_catalog.project_names()]
    if not any(entry.project for entry in board):
        raise UserError(
            "RESULTS.md is published from the project's evidence. Received: a folder of bundles "
            "that holds none. Use a checkout of the project, with its mlruns/evidence/."
        )
    with _open_folder(folder):
        _write_figures(
            folder / FIGURES,
            {each.name: each.project.project_figure() if each.project else None for each in board},
        )
        document = results_document(board)
        for each in document["claims"]:
            del each["project"]  # which is the same
        written = _write_results(document, markdown.card_links(), folder)
        counted = counts.of_claims(map(ClaimView, document["claims"]))
        for page in filter(Path.is_file, (folder / name for name in counts.PAGES)):
            page.write_text(counted.replace_block(page.read_text()))
    return document | written


def results_document(board: Sequence[Entry]) -> dict[str, Any]:
    """Return what results.json holds: every claim, and trained networks that lack seeds."""
    begun = [entry.begun.document() for entry in board if entry.begun]
    return {"claims": [entry.document() for entry in board], "unfinished": begun}


def _write_results(
    document: Mapping[str, Any], links: Mapping[str, str], folder: Path
) -> dict[str, str]:
    """Write results.json, and of it RESULTS.md; return where they are."""
    file, page = folder / FILE, folder / "RESULTS.md"
    plain = to_jsonable_python(document, inf_nan_mode="null", fallback=str)
    file.write_text(json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    page.write_text(markdown.results(published.read(file), links))
    return {"results": str(page), "document": str(file)}


@contextmanager
def _open_folder(folder: Path) -> Iterator[None]:
    """Make the folder of a report; UserError or Unavailable if it cannot be written."""
    try:
        (folder / FIGURES).mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise disk_error(error)(
            f"The report needs a folder it can write. Received: {error} for {folder}. Name another "
            "with --out."
        ) from error


def _write_figures(folder: Path, pictures: Mapping[str, bytes | None]) -> dict[str, Path]:
    """Write the figures of the claims, and delete those of claims without one; return the files."""
    files = {}
    for name, picture in pictures.items():
        file = folder / f"{name}.png"
        if picture is None:
            file.unlink(missing_ok=True)
        else:
            file.write_bytes(picture)
            files[name] = file
    return files
