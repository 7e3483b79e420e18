"""The scoreboard: what MLflow holds, as RESULTS.md and one page of HTML, a figure a claim.

It reads the database and writes files; the same database gives the same files. What the project
recorded stands beside what was measured here. Verdicts are given anew, by the rules of today, from
the numbers of every seed.
"""

import io
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipelines.errors import UserError, disk_error
from pipelines.measurement import cells, claim, claim_catalog, documents
from pipelines.measurement.plan import stated_plan_of
from pipelines.measurement.verdict import NOT_RUN
from pipelines.recipes.catalog import SCALES
from pipelines.results import _templates, _trained_networks, counts
from pipelines.results._templates import DOCUMENTS
from pipelines.results.evidence import bundles
from pipelines.running.seed_statistics import format_spread
from pipelines.runtime.provenance import ROOT
from pipelines.tracking import history, mlflow_ui, store, tracked_run

STATED = ("says", "source", "reported", "decided by")
PUBLISHED = (  # columns of the project's own RESULTS.md
    *("claim", "verdict", "as printed", "scale", "floor reached"),
    *(*STATED, "measured", "cost", "commit", "run"),
)
LOCAL = (  # of the one that is written beside a database
    *("claim", "recorded by the project", "yours", "as printed", "floor reached"),
    *(*STATED, "cost", "commit", "run"),
)
TRAINED = "Trained networks"  # title of their table
JUDGEMENT = ("verdict", "as_printed", "floor", "quotations")
LETTERS = {"BEL": "B", "BHL": "B", "Bartlett's": "B"}


@dataclass(frozen=True)
class Result:
    """A finished run of a claim, with what the rules of today say of it."""

    run: history.Row
    judgement: dict[str, Any]

    @property
    def verdict(self) -> str:
        return str(self.judgement["verdict"])

    @property
    def scale(self) -> str:
        return self.run.tags["scale"]

    @property
    def judged_row(self) -> history.Row:
        """Return the run with its judgement by the rules of today, not those of its day."""
        return replace(self.run, tags={**self.run.tags, **claim.tags_of(self.judgement)})

    @property
    def link(self) -> str:
        """Return the address of the run's page in the UI."""
        return mlflow_ui.run_page(self.run.id)

    def document(self) -> dict[str, Any]:
        """Return the claim as `run --json` prints it."""
        return documents.claim_document(self.run) | self.judgement

    def metrics(self) -> str:
        """Return the metrics that decide, then those that are reported or shown: mean ± sd (n)."""
        claim = claim_catalog.load(self.run.tags["claim"])
        return describe_metrics(claim, self.document()["metrics"])

    def commit(self) -> str:
        """Return the commit, and the codes of cells that were measured by others."""
        codes = self.run.tags.get(documents.MEASURED_BY)
        return self.run.tags["commit"] + (f"; measured by the codes {codes}" if codes else "")


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
    def source(self) -> str:
        return claim_catalog.load(self.name).source

    @property
    def document_of(self) -> str:
        """Return the letters of the first document that its source names; `ours` without one."""
        words = [LETTERS.get(word, word) for word in re.findall(r"[\w']+", self.source)]
        return next((word for word in words if word in DOCUMENTS), "ours")

    @property
    def verdict(self) -> str:
        return (
            self.shown.verdict if self.shown else claim_catalog.load(self.name).verdict_without_run
        )

    @property
    def quotations(self) -> list[dict[str, Any]]:
        """Return the sentences of the source, each with its grade, measured or not."""
        if self.shown:
            return list(self.shown.judgement["quotations"])
        return list(claim_catalog.load(self.name).judge({}, SCALES[0])["quotations"])

    def document(self) -> dict[str, Any]:
        """Return the claim as `run --json` prints it, yours if there is one, and the project's.

        Without either its verdict is "not run", or "not decidable here".
        """
        bare: dict[str, Any] = {"claim": self.name, "source": self.source, "metrics": {}}
        bare |= {"verdict": self.verdict, "quotations": self.quotations}
        project = self.project.document() if self.project else None
        owner = "you" if self.yours else "project" if self.project else None
        shown = self.shown.document() if self.shown else bare
        return {**shown, "recorded_by": owner, "project": project}

    def cells(self) -> dict[str, str]:
        """Return the row of the scoreboard by column, of the run its first letters.

        Without a run, its cost is what one would cost at each scale that is judged.
        """
        claim, shown = claim_catalog.load(self.name), self.shown
        costs = "; ".join(
            f"{scale} {cost}"
            for scale, cost in claim.costs.items()
            if scale not in claim.unjudged_scales
        )
        cells = dict.fromkeys((*PUBLISHED, *LOCAL), "") | {
            "claim": self.name,
            "verdict": self.verdict,
            "says": claim.says,
            "source": self.source,
            "reported": "; ".join(f"{key} {value:g}" for key, value in claim.reported.items()),
            "decided by": "; ".join(map(str, claim.decided_by)),
            "recorded by the project": describe_result(self.project),
            "yours": describe_result(self.yours),
            "cost": "; ".join(filter(None, (costs, claim.price))),
        }
        if shown is None:
            return cells
        document = shown.document()
        return cells | {
            "as printed": document["as_printed"],
            "scale": shown.scale,
            "floor reached": document["floor"],
            "measured": shown.metrics(),
            "cost": f"{document['wall_s']:.0f} s",
            "commit": shown.commit(),
            "run": shown.run.origin[:8],
        }


def describe_result(result: Result | None) -> str:
    """Return `holds at cpu scale: ratio 0.24 ± 0.003 (n = 5)`; `not run`."""
    if result is None:
        return NOT_RUN
    return f"{result.verdict} at {result.scale} scale: {result.metrics()}"


def describe_metrics(stated: claim.Claim, metrics: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the metrics that decide a claim, then those reported and shown, as mean ± sd (n)."""
    decisive = [bound.metric for bound in stated.decided_by]
    keys = dict.fromkeys([*decisive, *stated.reported, *stated.shown])
    return "; ".join(f"{key} {format_spread(metrics[key])}" for key in keys if key in metrics)


def group_by_document(entries: list[Entry]) -> list[tuple[str, list[Entry]]]:
    """Return the entries by the title of their document, ours last; those not run at the end."""
    groups: dict[str, list[Entry]] = {letters: [] for letters in DOCUMENTS}
    for entry in sorted(entries, key=lambda entry: entry.shown is None):
        groups[entry.document_of].append(entry)
    return [(f"{key}: {DOCUMENTS[key]}", group) for key, group in groups.items() if group]


def entries(name: str | None = None) -> list[Entry]:
    """Return one entry a claim, by name, or that of one claim."""
    project, yours = stated_results(**({"claim": name} if name else {}))
    judged = documents.judgements([*project.values(), *yours.values()])
    results = [
        {name: Result(row, judged[row.id]) for name, row in chosen.items()}
        for chosen in (project, yours)
    ]
    names = [name] if name else claim_catalog.names()
    return [Entry(name, *(each.get(name) for each in results)) for name in names]


def stated_results(**tags: str) -> tuple[dict[str, history.Row], dict[str, history.Row]]:
    """Return by claim the project's run and yours, with what the claim states today.

    Of several the one at the largest scale, then the project's of most seeds, then the newest.
    """
    rows = [row for row in history.rows_with_evidence(kind="claim", **tags) if is_stated(row)]
    return project_results(rows), largest_results([row for row in rows if not row.is_project])


def entry_of_run(document: Mapping[str, Any]) -> Entry:
    """Return the entry of a run that was just shown or measured, beside the project's."""
    row, name = history.row(document["run_id"]), str(document["claim"])
    result = Result(row, {key: document[key] for key in JUDGEMENT})
    if row.is_project:
        return Entry(name, project=result)
    [beside] = entries(name)
    return replace(beside, yours=result)


def project_results(rows: Iterable[history.Row]) -> dict[str, history.Row]:
    """Return by claim the run that stands for the project, of those in its evidence today."""
    origins = bundles.origins()
    shipped = [row for row in rows if row.is_project and row.origin in origins]
    return largest_results(shipped, most_seeds=True)


def largest_results(
    rows: Iterable[history.Row], most_seeds: bool = False
) -> dict[str, history.Row]:
    """Return by claim its run of the largest scale, the first of several.

    With `most_seeds`, of those the one with most seeds.
    """

    def preference(row: history.Row) -> tuple[int, int]:
        return SCALES.index(row.tags["scale"]), int(row.tags["seeds"]) * most_seeds

    chosen: dict[str, history.Row] = {}
    for row in sorted(rows, key=preference, reverse=True):
        chosen.setdefault(row.tags["claim"], row)
    return chosen


def unfinished_entries(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the project's trained networks that lack seeds, at larger scales than in `entries`."""
    rows = history.rows_with_evidence(kind="claim")
    plans = {
        row.id: plan
        for row in rows
        if (plan := stated_plan_of(row)) and plan.claim.recipes
        if not plan.first_seed and not plan.is_as_stated
    }
    begun = project_results(row for row in rows if row.id in plans)
    judged = documents.judgements(list(begun.values()))
    for entry in entries:
        row, project = begun.get(entry.name), entry.project
        scale = SCALES.index(project.scale) if project else -1
        if row and SCALES.index(row.tags["scale"]) > scale:
            plan = plans[row.id]
            verdict = {"verdict": f"none yet: {plan.seeds} of {plan.claim.seeds} seeds"}
            yield Entry(entry.name, Result(row, judged[row.id] | verdict))


def is_stated(row: history.Row) -> bool:
    """Return whether a run has the settings and seeds that its claim states today."""
    plan = stated_plan_of(row)
    return plan is not None and plan.is_as_stated


def latest_studies() -> list[history.Row]:
    """Return the newest run of every tuning study, sorted by name."""
    newest = {row.tags["study"]: row for row in reversed(history.rows(kind="study"))}
    return [newest[name] for name in sorted(newest)]


def write(folder: Path | None = None) -> dict[str, Any]:
    """Write RESULTS.md, figures/ and results.html into a folder and return the JSON document.

    By default the folder is report/ beside the database.
    """
    folder, board, studies = folder or store.home() / "report", entries(), latest_studies()
    with _open_folder(folder):
        figures, tables = _write_figures(board, folder / "figures"), _tables(board, studies)
        (folder / "RESULTS.md").write_text(markdown(board, tables, figures, LOCAL))
        html = _templates.render_page(board, tables, figures)
        (folder / "results.html").write_text(html)
    return {
        "claims": [entry.document() for entry in board],
        "studies": [{"study": s.name, "run_id": s.id, "metrics": s.metrics} for s in studies],
        "results": str(folder / "RESULTS.md"),
        "page": str(folder / "results.html"),
    }


def publish(folder: Path | None = None) -> dict[str, Any]:
    """Write RESULTS.md and figures/ of the project's evidence alone and return the JSON document.

    By default the folder is the project's own. Raise UserError, before anything is written, if
    this store holds no evidence.
    """
    folder, board = folder or ROOT, [Entry(entry.name, entry.project) for entry in entries()]
    if not any(entry.project for entry in board):
        raise UserError(
            "RESULTS.md is published from the project's evidence. Received: a store that holds "
            "none. Use the project's own home, or import the bundles in mlruns/evidence/."
        )
    with _open_folder(folder):
        figures = _write_figures(board, folder / "figures")
        (folder / "RESULTS.md").write_text(markdown(board, _tables(board, []), figures, PUBLISHED))
        for page in filter(Path.is_file, (folder / name for name in counts.PAGES)):
            page.write_text(counts.of_entries(board).replace_block(page.read_text()))
    return {"claims": [entry.document() for entry in board], "results": str(folder / "RESULTS.md")}


def render_board(
    board: Sequence[Entry], pictures: Mapping[str, str], pages: Mapping[str, str]
) -> str:
    """Return the scoreboard as part of a page of HTML, with addresses of figures and pages."""
    return _templates.render_board(board, pictures, pages)


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


def _write_figures(entries: list[Entry], folder: Path) -> dict[str, Path]:
    """Write the figures of the claims; return their files by claim."""
    files = {}
    for entry in entries:
        run, picture = entry.shown.run if entry.shown else None, None
        plan = stated_plan_of(run) if run else None
        trained = run and plan and plan.claim.recipes
        # networks take too long to be trained again for a better figure: it is drawn anew
        if run and plan and (measured := cells.read_plan(plan, run.id) if trained else None):
            drawn = io.BytesIO()
            plan.draw(measured, run.id).savefig(drawn, **tracked_run.FIGURE_STYLE)
            picture = drawn.getvalue()
        elif run:
            picture = store.artifact(run.id, "figure.png")
        file = folder / f"{entry.name}.png"
        if picture is None:
            file.unlink(missing_ok=True)
        else:
            file.write_bytes(picture)
            files[entry.name] = file
    return files


def markdown(
    entries: list[Entry],
    tables: Mapping[str, Sequence[str]],
    figures: Collection[str],
    columns: Sequence[str],
) -> str:
    """Return RESULTS.md: the scoreboard, tables by title, and the claims' cards and figures."""
    lines = [
        "# Results",
        "",
        "Written from the MLflow database by `python -m pipelines report`; do not edit by hand. "
        "sd: standard deviation over n seeds. A run is named by the first letters of its id; its "
        "page is where `python -m pipelines ui` runs.",
        "",
        *counts.of_entries(entries).lines(),
    ]
    for title, group in group_by_document(entries):
        lines += ["", f"## {title}", "", f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
        for entry in group:
            cells = {key: cell.replace("|", "\\|") for key, cell in entry.cells().items()}
            if entry.shown:  # its name leads to its card
                cells["claim"] = f"[{entry.name}](#{entry.name})"
            if entry.shown and columns == LOCAL:  # another home has other addresses
                cells["run"] = f"[{cells['run']}]({entry.shown.link})"
            lines.append(f"| {' | '.join(cells[column] for column in columns)} |")
    for title, table in tables.items():
        lines += ["", f"## {title}", "", *table]
    for entry in entries:
        if entry.shown:
            lines += ["", f"## {entry.name}", ""]
            if entry.name in figures:
                lines += [f"![{entry.name}](figures/{entry.name}.png)", ""]
            metrics = entry.shown.document()["metrics"]
            lines += [claim_catalog.card(entry.name), "", "Measured:", ""]
            lines += [f"- `{key}` {format_spread(value)}" for key, value in metrics.items()]
    return "\n".join(lines) + "\n"


def _tables(entries: list[Entry], studies: list[history.Row]) -> dict[str, list[str]]:
    """Return by title the lines of the Markdown tables below the scoreboard, of those with rows."""
    trained = sorted([*entries, *unfinished_entries(entries)], key=lambda entry: entry.name)
    head = "| study | recipe | trials | at the start: validation error | best | setting |"
    rows = [
        f"| {s.name} | {s.tags['recipe']} | {s.metrics['trials']:.0f} "
        f"| {s.metrics['baseline_val_error_pct']:.2f} % | {s.metrics['best_val_error_pct']:.2f} % "
        f"| `{s.tags['best']}` |"
        for s in studies
    ]
    tables = {
        TRAINED: _trained_networks.write_table(trained),
        "Learning-rate studies": [head, "|---|---|---|---|---|---|", *rows] if rows else [],
    }
    return {title: table for title, table in tables.items() if table}
