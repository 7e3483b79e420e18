"""The scoreboard: what MLflow holds, as RESULTS.md and one page of HTML, a figure a claim.

Reads the database, writes files, measures nothing; the same database gives the same files. What the
project recorded stands beside what was measured here. Verdicts are given anew, by the rules of
today, from the numbers of every seed.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipelines.errors import UserError, disk_error
from pipelines.measurement import claim, claim_catalog, documents
from pipelines.measurement.plan import MeasurementPlan
from pipelines.measurement.sweep import MEASURED_BY
from pipelines.measurement.verdict import format_spread
from pipelines.recipes.catalog import SCALES
from pipelines.results import _scoreboard_html, evidence
from pipelines.tracking import history, mlflow_ui, store

STATED = ("says", "source", "reported", "decided by")
PUBLISHED = (  # columns of the project's own RESULTS.md
    *("claim", "verdict", "as printed", "scale", "floor reached"),
    *(*STATED, "measured", "cost", "commit", "run"),
)
LOCAL = (  # of the one that is written beside a database
    *("claim", "recorded by the project", "yours", "as printed", "floor reached"),
    *(*STATED, "cost", "commit", "run"),
)
DOCUMENTS = {  # by the letters that name a source
    "HM": "Hardt & Ma 2016, Identity Matters in Deep Learning",
    "R": "de Benito Delgado 2017, a review of it",
    "B": "Bartlett 2018, slides; Bartlett, Evans & Long; Bartlett, Helmbold & Long",
    "LY": "Li & Yuan 2017, Convergence Analysis of Two-layer Neural Networks",
    "ours": "what no document says",
}
JUDGEMENT = ("verdict", "as_printed", "floor")
LETTERS = {"BEL": "B", "BHL": "B", "Bartlett's": "B"}


@dataclass(frozen=True)
class Result:
    """A finished run of a claim, with what the rules of today say of it."""

    run: history.Row
    judgement: dict[str, str]

    @property
    def verdict(self) -> str:
        return self.judgement["verdict"]

    @property
    def scale(self) -> str:
        return self.run.tags["scale"]

    @property
    def judged_row(self) -> history.Row:
        """The run with what the rules of today say of it, not those of its day."""
        return replace(self.run, tags={**self.run.tags, **self.judgement})

    @property
    def link(self) -> str:
        """The run's page in the UI."""
        return mlflow_ui.run_page(self.run.id)

    def document(self) -> dict[str, Any]:
        """The claim as `run --json` prints it."""
        return documents.claim_document(self.run) | self.judgement

    def metrics(self) -> str:
        """Return the metrics that decide, then those that are reported or shown: mean ± sd (n)."""
        return describe_metrics(
            claim_catalog.load(self.run.tags["claim"]), self.document()["metrics"]
        )

    def commit(self) -> str:
        """Return the commit, and the codes of cells that were measured by others."""
        codes = self.run.tags.get(MEASURED_BY)
        return self.run.tags["commit"] + (f"; measured by the codes {codes}" if codes else "")


@dataclass(frozen=True)
class Entry:
    """A claim with its latest finished runs at the largest scale: the project's, and yours."""

    name: str
    project: Result | None = None
    yours: Result | None = None

    @property
    def shown(self) -> Result | None:
        """Your result, else the project's, else none."""
        return self.yours or self.project

    @property
    def source(self) -> str:
        return claim_catalog.load(self.name).source

    @property
    def document_of(self) -> str:
        """The letters of the document whose claim it is: the first that its source names; ours."""
        words = [LETTERS.get(word, word) for word in re.findall(r"[\w']+", self.source)]
        return next((word for word in words if word in DOCUMENTS), "ours")

    @property
    def verdict(self) -> str:
        return self.shown.verdict if self.shown else "not run"

    def document(self) -> dict[str, Any]:
        """The claim as `run --json` prints it, yours before the project's, which is beside it.

        Its verdict is "not run" where there is neither.
        """
        bare = {"claim": self.name, "source": self.source, "verdict": "not run", "metrics": {}}
        project = self.project.document() if self.project else None
        owner = "you" if self.yours else "project" if self.project else None
        shown = self.shown.document() if self.shown else bare
        return {**shown, "recorded_by": owner, "project": project}

    def cells(self) -> dict[str, str]:
        """Return the row of the scoreboard by column, of the run its first letters.

        Without a run, what one would cost by scale.
        """
        stated, shown = claim_catalog.load(self.name), self.shown
        reported = "; ".join(f"{key} {value:g}" for key, value in stated.reported.items())
        cells = dict.fromkeys((*PUBLISHED, *LOCAL), "")
        cells |= {"claim": self.name, "verdict": self.verdict, "says": stated.says}
        cells |= {"source": self.source, "reported": reported}
        cells["decided by"] = "; ".join(map(str, stated.decided_by))
        cells |= {
            "recorded by the project": describe_result(self.project),
            "yours": describe_result(self.yours),
        }
        if shown is None:
            costs = "; ".join(f"{scale} {cost}" for scale, cost in stated.costs.items())
            return cells | {"cost": costs}
        document = shown.document()
        cells |= {"as printed": document["as_printed"], "scale": shown.scale}
        cells |= {"floor reached": document["floor"], "measured": shown.metrics()}
        cells |= {"cost": f"{document['wall_s']:.0f} s", "commit": shown.commit()}
        return cells | {"run": shown.run.origin[:8]}


def describe_result(result: Result | None) -> str:
    """Return `reproduced at cpu scale: ratio 0.24 ± 0.003 (n = 5)`; `not run`."""
    if result is None:
        return "not run"
    return f"{result.verdict} at {result.scale} scale: {result.metrics()}"


def describe_metrics(stated: claim.Claim, metrics: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the metrics that decide a claim, then those reported and shown, as mean ± sd (n)."""
    decisive = [bound.metric for bound in stated.decided_by]
    keys = dict.fromkeys([*decisive, *stated.reported, *stated.shown])
    return "; ".join(f"{key} {format_spread(metrics[key])}" for key in keys if key in metrics)


def group_by_document(found: list[Entry]) -> list[tuple[str, list[Entry]]]:
    """Return the entries by the title of their document, ours last; those not run at the end."""
    titles = {letters: f"{letters}: {title}" for letters, title in DOCUMENTS.items()}
    ordered = sorted(found, key=lambda entry: entry.shown is None)
    groups = {t: [e for e in ordered if e.document_of == letters] for letters, t in titles.items()}
    return [(title, some) for title, some in groups.items() if some]


def entries() -> list[Entry]:
    """Return one entry a claim, by name, of the runs with the claim's own settings."""
    rows = history.rows_with_evidence(kind="claim", as_stated="True")
    stated = [row for row in rows if is_stated(row)]  # newest first
    project = project_results(stated)
    yours = largest_results([row for row in stated if not row.is_project])
    judged = documents.judgements([*project.values(), *yours.values()])
    results = [
        {name: Result(row, judged[row.id]) for name, row in chosen.items()}
        for chosen in (project, yours)
    ]
    return [
        Entry(name, *(chosen.get(name) for chosen in results)) for name in claim_catalog.names()
    ]


def entry_of_run(document: Mapping[str, Any]) -> Entry:
    """Return the entry of a run that was just shown or measured, beside the project's."""
    row, name = history.row(document["run_id"]), str(document["claim"])
    result = Result(row, {key: str(document[key]) for key in JUDGEMENT})
    if row.is_project:
        return Entry(name, project=result)
    rows = history.rows(kind="claim", claim=name, as_stated="True", **{store.OWNER: store.PROJECT})
    chosen = project_results(filter(is_stated, rows)).get(name)
    judged = documents.judgements([chosen])[chosen.id] if chosen else {}
    return Entry(name, project=Result(chosen, judged) if chosen else None, yours=result)


def project_results(rows: Iterable[history.Row]) -> dict[str, history.Row]:
    """Return by claim the run that stands for the project: of those its evidence holds today."""
    origins = evidence.origins()
    held = [row for row in rows if row.is_project and row.origin in origins]
    return largest_results(held, seeds_count=True)


def largest_results(
    rows: Iterable[history.Row], seeds_count: bool = False
) -> dict[str, history.Row]:
    """Return by claim the first run of those with the largest scale and then, maybe, most seeds."""
    chosen: dict[str, history.Row] = {}
    for row in rows:
        before = chosen.setdefault(row.tags["claim"], row)
        if preference(row, seeds_count) > preference(before, seeds_count):
            chosen[row.tags["claim"]] = row
    return chosen


def is_stated(row: history.Row) -> bool:
    """Return whether a run has the settings and seeds that its claim states today."""
    name, scale = row.tags["claim"], row.tags["scale"]
    if name not in claim_catalog.names() or scale not in claim_catalog.load(name).scales:
        return False
    setting, seeds = claim_catalog.load(name).scales[scale], int(row.tags["seeds"])
    order = MeasurementPlan(name=name, scale=scale, settings=setting, seeds=seeds)
    return order.is_as_stated and order.fingerprint == row.tags["fingerprint"]


def preference(row: history.Row, seeds_count: bool) -> tuple[int, int]:
    """Return by what a run is preferred to others of its claim: its scale, maybe its seeds."""
    return SCALES.index(row.tags["scale"]), int(row.tags["seeds"]) * seeds_count


def latest_studies() -> list[history.Row]:
    """The newest run of every tuning study, by name."""
    newest = {row.tags["study"]: row for row in reversed(history.rows(kind="study"))}
    return [newest[name] for name in sorted(newest)]


def default_folder() -> Path:
    """Return where the report goes by itself: beside the database."""
    return store.home() / "report"


def write(folder: Path) -> dict[str, Any]:
    """Write RESULTS.md, figures/ and results.html into `folder`; the report as a JSON document."""
    found, tuned = entries(), latest_studies()
    with _open_folder(folder):
        drawn = _copy_figures(found, folder / "figures")
        (folder / "RESULTS.md").write_text(markdown(found, tuned, drawn, LOCAL))
        html = _scoreboard_html.render(
            group_by_document(found), LOCAL, _study_table(tuned) if tuned else [], drawn
        )
        (folder / "results.html").write_text(html)
    return {
        "claims": [entry.document() for entry in found],
        "studies": [{"study": s.name, "run_id": s.id, "metrics": s.metrics} for s in tuned],
        "results": str(folder / "RESULTS.md"),
        "page": str(folder / "results.html"),
    }


def publish(folder: Path) -> dict[str, Any]:
    """Write RESULTS.md and figures/ of the project's evidence alone; the JSON document of it.

    UserError where this store holds none of it, before anything is written.
    """
    found = [Entry(entry.name, entry.project) for entry in entries()]
    if not any(entry.project for entry in found):
        raise UserError(
            "RESULTS.md is published from the project's evidence. Received: a store that holds "
            "none. Use the project's own home, or import the bundles in mlruns/evidence/."
        )
    with _open_folder(folder):
        drawn = _copy_figures(found, folder / "figures")
        (folder / "RESULTS.md").write_text(markdown(found, [], drawn, PUBLISHED))
    return {
        "claims": [entry.document() for entry in found],
        "results": str(folder / "RESULTS.md"),
    }


@contextmanager
def _open_folder(folder: Path) -> Iterator[None]:
    try:
        (folder / "figures").mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise disk_error(error)(
            f"The report needs a folder it can write. Received: {error} for {folder}. Name another "
            "with --out."
        ) from error


def _copy_figures(found: list[Entry], figures: Path) -> dict[str, Path]:
    """The figures of the claims, copied out of their runs; by claim."""
    drawn = {}
    for entry in found:
        figure = store.artifact(entry.shown.run.id, "figure.png") if entry.shown else None
        if figure is not None:
            drawn[entry.name] = figures / f"{entry.name}.png"
            drawn[entry.name].write_bytes(figure)
    return drawn


def markdown(
    found: list[Entry], tuned: list[history.Row], drawn: Collection[str], columns: Sequence[str]
) -> str:
    """RESULTS.md: the scoreboard, the studies, and the card of every claim with its figure."""
    lines = [
        "# Results",
        "",
        "Written from the MLflow database by `python -m pipelines report`; do not edit by hand. "
        "sd: standard deviation over n seeds. Links of runs open where `python -m pipelines ui` "
        "runs.",
    ]
    for title, some in group_by_document(found):
        lines += ["", f"## {title}", "", f"| {' | '.join(columns)} |"]
        lines += [f"|{'---|' * len(columns)}"]
        lines += [f"| {' | '.join(_markdown_cells(entry, columns))} |" for entry in some]
    if tuned:
        lines += ["", "## Learning-rate studies", "", *_study_table(tuned)]
    for entry in found:
        if entry.shown:
            lines += ["", f"## {entry.name}", ""]
            if entry.name in drawn:
                lines += [f"![{entry.name}](figures/{entry.name}.png)", ""]
            lines += [claim_catalog.card(entry.name), "", *_metric_list(entry.shown)]
    return "\n".join(lines) + "\n"


def _markdown_cells(entry: Entry, columns: Sequence[str]) -> list[str]:
    """The cells in Markdown: the claim's name leads to its card, the run's to its page."""
    cells = {column: _escape(cell) for column, cell in entry.cells().items()}
    if entry.shown:
        cells["claim"] = f"[{entry.name}](#{entry.name})"
        cells["run"] = f"[{cells['run']}]({entry.shown.link})"
    return [cells[column] for column in columns]


def _metric_list(result: Result) -> list[str]:
    """Everything the claim measured, one bullet a metric."""
    metrics = result.document()["metrics"]
    return [
        "Measured:",
        "",
        *(f"- `{key}` {format_spread(value)}" for key, value in metrics.items()),
    ]


def _study_table(tuned: list[history.Row]) -> list[str]:
    head = "| study | recipe | trials | at the start: validation error | best | setting |"
    rows = [
        f"| {s.name} | {s.tags['recipe']} | {s.metrics['trials']:.0f} "
        f"| {s.metrics['baseline_val_error_pct']:.2f} % | {s.metrics['best_val_error_pct']:.2f} % "
        f"| `{s.tags['best']}` |"
        for s in tuned
    ]
    return [head, "|---|---|---|---|---|---|", *rows]


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|")
