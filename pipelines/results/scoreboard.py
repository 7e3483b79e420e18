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
from pipelines.measurement import cells, claim, claim_catalog
from pipelines.measurement.claim_run import json_document, trainings
from pipelines.measurement.claim_view import ClaimView
from pipelines.measurement.plan import MeasurementPlan, stated_plan_of
from pipelines.recipes.catalog import SCALES
from pipelines.results import counts, markdown, published, regressions, web_page
from pipelines.results.evidence import recorded
from pipelines.results.evidence.recorded import Evidence, RecordedRun
from pipelines.results.published import FILE
from pipelines.runtime.provenance import ROOT
from pipelines.tracking import history, store, tracked_run

JUDGEMENT = ("verdict", "as_printed", "floor", "quotations", "bounds")


@dataclass(frozen=True)
class Result:
    """A finished run of a claim, with what the rules of today say of it."""

    run: history.Row
    judgement: dict[str, Any]
    evidence: Evidence | None = None
    """The bundles that hold it; None of a run in MLflow."""
    recorded: RecordedRun | None = None

    @property
    def verdict(self) -> str:
        return str(self.judgement["verdict"])

    @property
    def scale(self) -> str:
        return self.run.tags["scale"]

    @cached_property
    def plan(self) -> MeasurementPlan | None:
        """Return its plan; None where the claim states other settings today."""
        return self.recorded.plan if self.recorded else stated_plan_of(self.run)

    @property
    def judged_row(self) -> history.Row:
        """Return the run with its judgement by the rules of today, not those of its day."""
        return replace(self.run, tags={**self.run.tags, **claim.tags_of(self.judgement)})

    def document(self) -> dict[str, Any]:
        """Return the claim as `run --json` prints it."""
        return json_document.claim_document(self.run) | self.judgement

    def devices(self) -> list[str]:
        """Return what its networks were trained on: `1 H100`."""
        if self.evidence and self.recorded:
            tags = [each.tags for each in self.evidence.trainings_of(self.recorded)]
        else:
            tags = [row.tags for row in trainings.of_run(self.run.id)]
        return sorted({each["device"].partition(",")[0] for each in tags if "device" in each})

    def picture(self) -> bytes | None:
        """Return its figure as PNG.

        Networks take too long to be trained again for a better figure: theirs is drawn anew.
        """
        plan = self.plan
        drawn = None
        if plan and plan.claim.recipes and self.evidence and self.recorded:
            drawn = self.evidence.draw(self.recorded)
        elif plan and plan.claim.recipes and (measured := cells.read_plan(plan, self.run.id)):
            drawn = plan.draw(measured, self.run.id)
        if drawn is None:
            return (
                self.recorded.picture
                if self.recorded
                else store.artifact(self.run.id, "figure.png")
            )
        picture = io.BytesIO()
        drawn.savefig(picture, **tracked_run.FIGURE_STYLE)
        return picture.getvalue()


@dataclass(frozen=True)
class Entry:
    """A claim with its run that counts, at the largest scale: the project's, and yours."""

    name: str
    project: Result | None = None
    yours: Result | None = None

    @property
    def shown(self) -> Result | None:
        """Return your result, else the project's, else None."""
        return self.yours or self.project

    @property
    def verdict(self) -> str:
        return (
            self.shown.verdict if self.shown else claim_catalog.load(self.name).verdict_without_run
        )

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
            document["agreement"] = regressions.agreement(
                self.project.judged_row, self.yours.judged_row
            )
        return document


def entries(name: str | None = None) -> list[Entry]:
    """Return one entry a claim, by name, or that of one claim."""
    rows = own_results(**({"claim": name} if name else {}))
    judged = json_document.judgements([*rows.values()])
    yours = {key: Result(row, judged[row.id]) for key, row in rows.items()}
    names = [name] if name else claim_catalog.names()
    return [Entry(each, project_result(each), yours.get(each)) for each in names]


def project_result(name: str) -> Result | None:
    """Return what the evidence holds of a claim at its largest scale, every byte of it checked."""
    evidence = recorded.read(name)
    return _recorded_result(evidence, evidence.deciding)


def _recorded_result(evidence: Evidence, run: RecordedRun | None) -> Result | None:
    if run is None or run.plan is None:
        return None
    judgement = json_document.judge(run.plan.claim, run.seed_values, run.plan.scale)
    return Result(run.row, judgement, evidence, run)


def unfinished(board: Sequence[Entry]) -> Iterator[Result]:
    """Yield the project's trained networks that lack seeds, at larger scales than on the board."""
    for entry in board:
        stated = claim_catalog.load(entry.name)
        if stated.recipes is None:
            continue
        evidence = (entry.project and entry.project.evidence) or recorded.read(entry.name)
        if begun := _recorded_result(evidence, evidence.begun):
            verdict = f"none yet: {begun.run.tags['seeds']} of {stated.seeds} seeds"
            yield replace(begun, judgement=begun.judgement | {"verdict": verdict})


def own_results(**tags: str) -> dict[str, history.Row]:
    """Return by claim the run that was measured here, with what the claim states today.

    Of several the newest at the largest scale.
    """
    rows = [row for row in history.rows(kind="claim", **tags) if is_stated(row)]
    rows.sort(key=lambda row: SCALES.index(row.tags["scale"]), reverse=True)
    return {row.tags["claim"]: row for row in reversed(rows)}


def imported_result(name: str) -> history.Row | None:
    """Return the project's result as this store has imported it."""
    project = project_result(name)
    rows = history.rows_with_evidence(kind="claim", claim=name) if project else []
    return next((row for row in rows if project and row.origin == project.run.id), None)


def entry_of_run(document: Mapping[str, Any]) -> Entry:
    """Return the entry of a run that was just shown or measured, beside the project's."""
    row, name = history.row(document["run_id"]), str(document["claim"])
    result = Result(row, {key: document[key] for key in JUDGEMENT})
    if row.is_project:
        return Entry(name, project=result)
    return Entry(name, project_result(name), result)


def is_stated(row: history.Row) -> bool:
    """Return whether a run has the settings and seeds that its claim states today."""
    plan = stated_plan_of(row)
    return plan is not None and plan.is_as_stated


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
        figures = _write_figures(board, folder / "figures")
        studies = [
            {"study": row.name, "run_id": row.id, "metrics": row.metrics}
            | {key: row.tags[key] for key in ("recipe", "best")}
            for row in latest_studies()
        ]
        document = {**results_document(board), "studies": studies}
        links = {entry.name: f"results.html#{entry.name}" for entry in board}
        _write_results(document, links, folder)
        page = web_page.render_page(document, figures)
        (folder / "results.html").write_text(page)
    return {**document, **_written(folder), "page": str(folder / "results.html")}


def publish(folder: Path | None = None) -> dict[str, Any]:
    """Write RESULTS.md, results.json and figures/ of the project's evidence alone; return its JSON.

    By default the folder is the project's own. Raise UserError, before anything is written, if
    there is no evidence.
    """
    folder = folder or ROOT
    board = [Entry(name, project_result(name)) for name in claim_catalog.names()]
    if not any(entry.project for entry in board):
        raise UserError(
            "RESULTS.md is published from the project's evidence. Received: a folder of bundles "
            "that holds none. Use a checkout of the project, with its mlruns/evidence/."
        )
    with _open_folder(folder):
        _write_figures(board, folder / "figures")
        document = results_document(board)
        for each in document["claims"]:
            del each["project"]  # which is the same
        _write_results(document, markdown.card_links(), folder)
        for page in filter(Path.is_file, (folder / name for name in counts.PAGES)):
            counted = counts.of_claims(map(ClaimView, document["claims"]))
            page.write_text(counted.replace_block(page.read_text()))
    return {**document, **_written(folder)}


def results_document(board: Sequence[Entry]) -> dict[str, Any]:
    """Return what results.json holds: every claim, and trained networks that lack seeds."""
    trained = {entry.name: entry.shown for entry in board if claim_catalog.load(entry.name).recipes}
    return {
        "claims": [
            entry.document() | ({"devices": shown.devices()} if shown else {})
            for entry in board
            for shown in [trained.get(entry.name)]
        ],
        "unfinished": [each.document() | {"devices": each.devices()} for each in unfinished(board)],
    }


def _write_results(document: Mapping[str, Any], links: Mapping[str, str], folder: Path) -> None:
    plain = to_jsonable_python(document, inf_nan_mode="null", fallback=str)
    text = json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False)
    (folder / FILE).write_text(f"{text}\n")
    (folder / "RESULTS.md").write_text(markdown.results(published.read(folder / FILE), links))


def _written(folder: Path) -> dict[str, str]:
    return {"results": str(folder / "RESULTS.md"), "document": str(folder / FILE)}


@contextmanager
def _open_folder(folder: Path) -> Iterator[None]:
    """Make the folder of a report; UserError or Unavailable if it cannot be written."""
    try:
        (folder / "figures").mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise disk_error(error)(
            f"The report needs a folder it can write. Received: {error} for {folder}. Name another "
            "with --out."
        ) from error


def _write_figures(board: Sequence[Entry], folder: Path) -> dict[str, Path]:
    """Write the figures of the claims; return their files by claim."""
    files = {}
    for entry in board:
        picture = entry.shown.picture() if entry.shown else None
        file = folder / f"{entry.name}.png"
        if picture is None:
            file.unlink(missing_ok=True)
        else:
            file.write_bytes(picture)
            files[entry.name] = file
    return files
