"""The scoreboard: what MLflow holds, as RESULTS.md with one figure a claim.

Reads the database, writes files, measures nothing; the same database gives the same files.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines import claim, history, store, tables
from pipelines.errors import UserError
from pipelines.provenance import ROOT
from pipelines.published import SCALES

ROWS = 20  # of a sweep in the terminal
COLUMNS = (
    "claim",
    "source",
    "says",
    "reported or bound",
    "measured",
    "scale",
    "verdict",
    "cost",
    "commit",
)


@dataclass(frozen=True)
class Entry:
    """A claim with its latest finished run at the largest scale; no run where there is none."""

    name: str
    run: history.Row | None

    @property
    def verdict(self) -> str:
        return self.run.tags["verdict"] if self.run else "not run"

    def document(self) -> dict[str, Any]:
        """The claim as `run --json` prints it, with verdict "not run" where there is no run."""
        if self.run:
            return tables.document(self.run)
        source = claim.load(self.name).source
        return {"claim": self.name, "source": source, "verdict": self.verdict, "metrics": {}}

    def cells(self) -> list[str]:
        """The row of the scoreboard, in the order of COLUMNS."""
        found, document = claim.load(self.name), self.document()
        reported = ", ".join(f"{key} {value:g}" for key, value in found.reported.items())
        decisive = [b.metric for b in found.decided_by if b.metric in document["metrics"]]
        measured = "; ".join(f"{m} {tables.spread(document['metrics'][m])}" for m in decisive)
        cost = f"{document['wall_s']:.0f} s" if self.run else ""
        commit = self.run.tags["commit"] if self.run else ""
        scale = document.get("scale", "")
        bound = "; ".join(map(str, found.decided_by))
        return [
            self.name, found.source, found.says, reported or bound, measured, scale, self.verdict,
            cost, commit,
        ]  # fmt: skip


def entries() -> list[Entry]:
    """One entry a claim, by name: the newest run with the claim's own settings, largest scale."""
    chosen: dict[str, history.Row] = {}
    for row in history.rows(kind="claim", as_stated="True"):  # newest first
        name, before = row.tags["claim"], chosen.get(row.tags["claim"])
        if before is None or _rank(row) > _rank(before):
            chosen[name] = row
    return [Entry(name, chosen.get(name)) for name in claim.names()]


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
    """Write RESULTS.md and figures/ into `folder`; returns the report as one JSON document."""
    found, tuned, figures = entries(), studies(), folder / "figures"
    try:
        figures.mkdir(parents=True, exist_ok=True)
        drawn = {
            e.name
            for e in found
            if e.run and store.copy_artifact(e.run.id, "figure.png", figures / f"{e.name}.png")
        }
        (folder / "RESULTS.md").write_text(markdown(found, tuned, drawn))
    except OSError as error:
        raise UserError(
            f"The report needs a folder it can write. Received: {folder}: {error.strerror}. "
            "Name another with --out."
        ) from error
    return {
        "claims": [entry.document() for entry in found],
        "studies": [{"study": s.name, "run_id": s.id, "metrics": s.metrics} for s in tuned],
        "results": str(folder / "RESULTS.md"),
    }


def markdown(found: list[Entry], tuned: list[history.Row], drawn: Collection[str]) -> str:
    """RESULTS.md: the scoreboard, the studies, and the card of every claim with its figure."""
    lines = [
        "# Results",
        "",
        "Written from the MLflow database by `python -m pipelines report`; do not edit by hand.",
        "Sources: HM = Hardt & Ma 2016; B = Bartlett's slides of 2018, after BEL = Bartlett, Evans "
        "& Long and BHL = Bartlett, Helmbold & Long; LY = Li & Yuan 2017. sd: standard deviation "
        "over n seeds.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        f"|{'---|' * len(COLUMNS)}",
    ]
    lines += [f"| {' | '.join(map(_escape, entry.cells()))} |" for entry in found]
    if tuned:
        lines += ["", "## Learning-rate studies", "", *_study_table(tuned)]
    for entry in found:
        if entry.run:
            lines += ["", f"## {entry.name}", ""]
            if entry.name in drawn:
                lines += [f"![{entry.name}](figures/{entry.name}.png)", ""]
            lines += [claim.card(entry.name), "", *_metric_list(entry)]
    return "\n".join(lines) + "\n"


def _metric_list(entry: Entry) -> list[str]:
    """Everything the claim measured, one bullet a metric."""
    metrics = entry.document()["metrics"]
    return [
        "Measured:",
        "",
        *(f"- `{key}` {tables.spread(value)}" for key, value in metrics.items()),
    ]


def _study_table(tuned: list[history.Row]) -> list[str]:
    head = "| study | recipe | trials | published schedule: validation error | best | setting |"
    rows = [
        f"| {s.name} | {s.tags['recipe']} | {s.metrics['trials']:.0f} "
        f"| {s.metrics['baseline_val_error_pct']:.2f} % | {s.metrics['best_val_error_pct']:.2f} % "
        f"| `{s.tags['best']}` |"
        for s in tuned
    ]
    return [head, "|---|---|---|---|---|---|", *rows]


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|")


def show(found: list[Entry]) -> None:
    """The scoreboard in the terminal: of each claim the first metric that decides it."""
    from rich.console import Console
    from rich.table import Table

    table = Table("claim", "verdict", "measured: mean ± sd (n), and its bound", "cost")
    colours = {"reproduced": "green", "refuted": "red"}
    for entry in found:
        document, bound = entry.document(), claim.load(entry.name).decided_by[0]
        measured = cost = ""
        if entry.run:
            found_metric = document["metrics"].get(bound.metric)
            shown = tables.spread(found_metric) if found_metric else "not judged"
            measured = f"{bound.metric} {shown}\n{bound.rule}"
            cost = f"{document['wall_s']:.0f} s"
        verdict = f"[{colours.get(entry.verdict, 'yellow')}]{entry.verdict}"
        table.add_row(entry.name, verdict, measured, cost)
    Console().print(table)


def show_sweep(document: Mapping[str, Any]) -> None:
    """A sweep in the terminal: one row a setting."""
    from rich.console import Console
    from rich.table import Table

    head, *body = tables.summary(document["settings"])
    inner = claim.load(document["claim"]).inner
    over = f"over {inner}" if inner else "of every setting"
    table = Table(*head, caption=f"worst value {over}; mean ± sd over seeds")
    for row in body[:ROWS]:
        table.add_row(*row)
    Console().print(table)
    if len(body) > ROWS:
        print(f"{len(body) - ROWS} more settings are in {tables.CSV}.")
    if document["reused"]:
        print("Found finished with the same settings; --force repeats it.")
    print(f"{document['claim']}: {document['verdict']}")
    show_place(document["run_id"])


def show_place(run_id: str) -> None:
    """Where to see a run."""
    print(f"Figure and curves: python -m pipelines ui, run {run_id}")
    print(f"Its settings in one chart: {store.address()}/{store.children_chart(run_id)}")
