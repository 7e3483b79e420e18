"""The scoreboard: what MLflow holds, as RESULTS.md and one page of HTML, a figure a claim.

Reads the database, writes files, measures nothing; the same database gives the same files. Verdicts
are given anew, by the rules of today, from the numbers of every seed.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines import claim, history, page, recorded, store, tables, ui
from pipelines.errors import disk_error
from pipelines.order import Order
from pipelines.provenance import ROOT
from pipelines.published import SCALES
from pipelines.verdict import spread

COLUMNS = (
    "claim",
    "verdict",
    "as printed",
    "scale",
    "floor reached",
    "says",
    "source",
    "reported",
    "decided by",
    "measured",
    "cost",
    "commit",
    "run",
)
DOCUMENTS = {  # by the letters that name a source
    "HM": "Hardt & Ma 2016, Identity Matters in Deep Learning",
    "R": "de Benito Delgado 2017, a review of it",
    "B": "Bartlett 2018, slides; Bartlett, Evans & Long; Bartlett, Helmbold & Long",
    "LY": "Li & Yuan 2017, Convergence Analysis of Two-layer Neural Networks",
    "ours": "what no document says",
}
LETTERS = {"BEL": "B", "BHL": "B", "Bartlett's": "B"}


@dataclass(frozen=True)
class Entry:
    """A claim with its latest finished run at the largest scale; no run where there is none."""

    name: str
    run: history.Row | None
    judgement: dict[str, str] = field(default_factory=dict)
    """Verdict, as printed and floor by the rules of today; empty: as the run has them."""

    @property
    def source(self) -> str:
        return str(self.run.tags["source"] if self.run else claim.load(self.name).source)

    @property
    def document_of(self) -> str:
        """The letters of the document whose claim it is: the first that its source names; ours."""
        words = [LETTERS.get(word, word) for word in re.findall(r"[\w']+", self.source)]
        return next((word for word in words if word in DOCUMENTS), "ours")

    @property
    def link(self) -> str:
        """The run's page in the UI."""
        return ui.run_page(self.run.id) if self.run else ""

    @property
    def verdict(self) -> str:
        return str(self.document()["verdict"])

    def document(self) -> dict[str, Any]:
        """The claim as `run --json` prints it, with verdict "not run" where there is no run."""
        if self.run:
            return tables.document(self.run) | self.judgement
        return {"claim": self.name, "source": self.source, "verdict": "not run", "metrics": {}}

    def cells(self) -> list[str]:
        """Return the row of the scoreboard in the order of COLUMNS, of the run its first letters.

        Without a run, what one would cost by scale.
        """
        found, document = claim.load(self.name), self.document()
        reported = "; ".join(f"{key} {value:g}" for key, value in found.reported.items())
        decisive = [bound.metric for bound in found.decided_by]
        shown = dict.fromkeys([*decisive, *found.reported, *found.shown])
        metrics = {key: document["metrics"][key] for key in shown if key in document["metrics"]}
        measured = "; ".join(f"{key} {spread(value)}" for key, value in metrics.items())
        stated = [found.says, self.source, reported, "; ".join(map(str, found.decided_by))]
        if self.run is None:
            costs = "; ".join(f"{scale} {cost}" for scale, cost in found.costs.items())
            return [self.name, self.verdict, "", "", "", *stated, "", costs, "", ""]
        tags = self.run.tags
        judged = [document["verdict"], document["as_printed"], tags["scale"], document["floor"]]
        effort = [f"{document['wall_s']:.0f} s", tags["commit"], self.run.origin[:8]]
        return [self.name, *judged, *stated, measured, *effort]


def grouped(found: list[Entry]) -> list[tuple[str, list[Entry]]]:
    """Return the entries by the title of their document, ours last; those not run at the end."""
    titles = {letters: f"{letters}: {title}" for letters, title in DOCUMENTS.items()}
    ordered = sorted(found, key=lambda entry: entry.run is None)
    groups = {t: [e for e in ordered if e.document_of == letters] for letters, t in titles.items()}
    return [(title, some) for title, some in groups.items() if some]


def entries() -> list[Entry]:
    """One entry a claim, by name: the newest run with the claim's own settings, largest scale."""
    chosen: dict[str, history.Row] = {}
    for row in filter(_is_stated, history.rows(kind="claim", as_stated="True")):  # newest first
        name, before = row.tags["claim"], chosen.get(row.tags["claim"])
        if before is None or _rank(row) > _rank(before):
            chosen[name] = row
    judged = judgements(list(chosen.values()))
    return [Entry(name, chosen.get(name), judged.get(name, {})) for name in claim.names()]


def judgements(rows: Sequence[history.Row]) -> dict[str, dict[str, str]]:
    """Return by claim what the rules of today say of these runs, one a claim."""
    curves = recorded.curves([row.id for row in rows])
    judged = {}
    for row in rows:
        _, columns = curves[row.id]
        values = {
            key.removeprefix(claim.SEED): column.tolist()
            for key, column in columns.items()
            if key.startswith(claim.SEED)
        }
        judged[row.tags["claim"]] = claim.load(row.tags["claim"]).judge(values, row.tags["scale"])
    return judged


def _is_stated(row: history.Row) -> bool:
    """Return whether a run has the settings and seeds that its claim states today."""
    name, scale = row.tags["claim"], row.tags["scale"]
    if name not in claim.names() or scale not in claim.load(name).scales:
        return False
    setting, seeds = claim.load(name).scales[scale], int(row.tags["seeds"])
    order = Order(name=name, scale=scale, settings=setting, seeds=seeds)
    return order.as_stated and order.fingerprint == row.tags["fingerprint"]


def _rank(row: history.Row) -> int:
    return SCALES.index(row.tags["scale"])


def studies() -> list[history.Row]:
    """The newest run of every tuning study, by name."""
    newest = {row.tags["study"]: row for row in reversed(history.rows(kind="study"))}
    return [newest[name] for name in sorted(newest)]


def place() -> Path:
    """Where the report goes by itself: the project, or beside a database that lies elsewhere."""
    own = store.home() == ROOT / "mlruns"
    return ROOT if own else store.home()


def write(folder: Path) -> dict[str, Any]:
    """Write RESULTS.md, figures/ and results.html into `folder`; the report as a JSON document."""
    found, tuned, figures = entries(), studies(), folder / "figures"
    try:
        figures.mkdir(parents=True, exist_ok=True)
        drawn = _drawn(found, figures)
        (folder / "RESULTS.md").write_text(markdown(found, tuned, drawn))
        html = page.html(grouped(found), COLUMNS, _study_table(tuned) if tuned else [], drawn)
        (folder / "results.html").write_text(html)
    except OSError as error:
        raise disk_error(error)(
            f"The report needs a folder it can write. Received: {error} for {folder}. Name another "
            "with --out."
        ) from error
    return {
        "claims": [entry.document() for entry in found],
        "studies": [{"study": s.name, "run_id": s.id, "metrics": s.metrics} for s in tuned],
        "results": str(folder / "RESULTS.md"),
        "page": str(folder / "results.html"),
    }


def _drawn(found: list[Entry], figures: Path) -> dict[str, Path]:
    """The figures of the claims, copied out of their runs; by claim."""
    drawn = {}
    for entry in found:
        figure = store.artifact(entry.run.id, "figure.png") if entry.run else None
        if figure is not None:
            drawn[entry.name] = figures / f"{entry.name}.png"
            drawn[entry.name].write_bytes(figure)
    return drawn


def markdown(found: list[Entry], tuned: list[history.Row], drawn: Collection[str]) -> str:
    """RESULTS.md: the scoreboard, the studies, and the card of every claim with its figure."""
    lines = [
        "# Results",
        "",
        "Written from the MLflow database by `python -m pipelines report`; do not edit by hand. "
        "sd: standard deviation over n seeds. Links of runs open where `python -m pipelines ui` "
        "runs.",
    ]
    for title, some in grouped(found):
        lines += ["", f"## {title}", "", f"| {' | '.join(COLUMNS)} |"]
        lines += [f"|{'---|' * len(COLUMNS)}"]
        lines += [f"| {' | '.join(_linked(entry))} |" for entry in some]
    if tuned:
        lines += ["", "## Learning-rate studies", "", *_study_table(tuned)]
    for entry in found:
        if entry.run:
            lines += ["", f"## {entry.name}", ""]
            if entry.name in drawn:
                lines += [f"![{entry.name}](figures/{entry.name}.png)", ""]
            lines += [claim.card(entry.name), "", *_metric_list(entry)]
    return "\n".join(lines) + "\n"


def _linked(entry: Entry) -> list[str]:
    """The cells in Markdown: the claim's name leads to its card, the run's to its page."""
    name, *cells, run = map(_escape, entry.cells())
    if entry.run is None:
        return [name, *cells, run]
    return [f"[{name}](#{name})", *cells, f"[{run}]({entry.link})"]


def _metric_list(entry: Entry) -> list[str]:
    """Everything the claim measured, one bullet a metric."""
    metrics = entry.document()["metrics"]
    return [
        "Measured:",
        "",
        *(f"- `{key}` {spread(value)}" for key, value in metrics.items()),
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
