"""The project's evidence: bundles of the runs behind RESULTS.md, which travel with the code.

Each holds runs of one claim, without stored networks. The project's own MLflow home imports them by
itself; there they have the tag `origin` = `project`, and count as nobody's own measurements.
"""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipelines.errors import UserError, describe_damage
from pipelines.measurement.claim_run import json_document, page, settings_table
from pipelines.runtime import places
from pipelines.tracking import history, store
from pipelines.tracking.bundles import exporting, file_format, importing
from pipelines.tracking.bundles.shape import Document, Listed

FOLDER = places.published_folder() / "mlruns" / "evidence"


def import_if_own(names: Collection[str] | None = None) -> int:
    """Import what this home lacks of the evidence, or of some claims'; return how many bundles.

    A store that MLFLOW_TRACKING_URI names holds what people put there: `import` brings a bundle.
    """
    return import_missing(names) if store.is_project_home() else 0


def import_runs(file: Path) -> dict[str, Any]:
    """Import the runs of a bundle, with the pages and charts of claims as this code writes them.

    What it holds of the project's evidence is taken from there, first.
    """
    given = {row.origin for row in rows_of(file)}
    import_if_own(
        {subject(f) for f, listed in read_listed().items() for r in listed if r.origin in given}
    )
    return importing.import_runs(file, _renew)


def _renew(document: Document, archive: file_format.Archive, run_id: str) -> Mapping[str, str]:
    """Return the page and chart of a claim's run in its tags, as this code writes them."""
    if document.tags.get("kind") != "claim":
        return {}
    row = row_of(document, run_id)
    values = json_document.seed_values(histories(document))
    csv = archive.artifact(document.run_id, settings_table.FILE) or b""
    return page.renewed_tags(row, values, csv.decode())


def import_missing(names: Collection[str] | None) -> int:
    """Import the bundles that this store lacks, all or of some claims; return how many."""
    listed = read_listed(names)
    present = _find_present(listed.values())
    missing = [file for file, rows in listed.items() if not _is_here(rows, present)]
    if missing:
        print(f"Importing the project's runs (once), bundles: {len(missing)}.", file=sys.stderr)
    imported = 0
    for file in missing:
        with _leave_out_damaged(file):
            importing.import_runs(file, _renew, as_project=True, present=present)
            imported += 1
    return imported


def _find_present(listed: Iterable[Sequence[Listed]]) -> dict[str, exporting.Present]:
    ids = [i for rows in listed for row in rows for i in (row.run_id, row.origin)]
    return exporting.find_present(ids)


def _is_here(rows: Sequence[Listed], present: Mapping[str, exporting.Present]) -> bool:
    """Return whether all these runs of a bundle are in this store, whole."""
    found = (present.get(row.run_id) or present.get(row.origin) for row in rows)
    return all(each is not None and not each.unfinished for each in found)


def list_bundles() -> dict[str, Any]:
    """Return every bundle: its claim, what it holds, its size, and whether it is in this store."""
    listed = read_listed()
    present = _find_present(listed.values())
    return {
        "evidence": [
            {"file": file.name, "claim": subject(file), "runs": len(rows)}
            | {"bytes": file.stat().st_size, "here": _is_here(rows, present)}
            for file, rows in listed.items()
        ]
    }


def print_bundles(document: Mapping[str, Any]) -> None:
    """Print the bundles and their size in all."""
    for row in document["evidence"]:
        here = "" if row["here"] else "  not here"
        print(f"{row['file']:<47}{row['runs']:>4} runs{row['bytes'] / 1000:>8,.0f} kB{here}")
    size = sum(row["bytes"] for row in document["evidence"])
    print(f"{len(document['evidence'])} bundles, {size:,} bytes: {FOLDER}")
    if not all(row["here"] for row in document["evidence"]):
        print("Take the others into this store: python -m pipelines evidence import")


def files(names: Collection[str] | None = None) -> list[Path]:
    """Return the files of the evidence: all, or those about the claims named."""
    return [f for f in sorted(FOLDER.glob("*.zip")) if names is None or subject(f) in names]


def subject(file: Path) -> str:
    """Return the claim that a bundle is about: `two-phases` of two-phases-3f2a9c01.zip."""
    return file.stem.rpartition("-")[0]


def read_listed(names: Collection[str] | None = None) -> dict[Path, list[Listed]]:
    """Return by file what the manifests say of their runs, of all claims or of those named.

    A file that is no bundle is left out, and that is said.
    """
    listed = {}
    for file in files(names):
        with _leave_out_damaged(file):
            listed[file] = rows_of(file)
    return listed


@contextmanager
def _leave_out_damaged(file: Path) -> Iterator[None]:
    """Go on after a file that cannot be read, once it is said which one and what to do."""
    try:
        yield
    except UserError as error:
        why = describe_damage(error.__cause__) if error.__cause__ else error
        print(
            f"{file} is left out, for it is no whole bundle: {why}. Move it away. What the project "
            f"ships comes back by: {places.restore_published()}",
            file=sys.stderr,
        )


def rows(names: Collection[str] | None = None) -> list[Listed]:
    """Return what the manifests say of every run, of all claims or of those named."""
    return [row for each in read_listed(names).values() for row in each]


def rows_of(file: Path) -> list[Listed]:
    """Return what the manifest of a bundle says of its runs."""
    return file_format.read_manifest(file).runs


def origins() -> set[str]:
    """Return the ids that the runs of the evidence had where they were measured."""
    return {row.origin for row in rows()}


def row_of(document: Document, run_id: str = "") -> history.Row:
    """Return a run of a bundle as the database would give it, with its id or another."""
    d = document
    last = {key: history.number(points[-1][2]) for key, points in d.metrics.items()}
    about = (run_id or d.run_id, d.name, d.status, d.start_ms, d.end_ms)
    return history.Row(*about, d.params, last, d.tags)


def curve(document: Document, metric: str) -> dict[int, float]:
    """Return the values of a metric of a run's document by step; KeyError if it has none."""
    return {step: history.number(value) for step, _, value in document.metrics[metric]}


def histories(document: Document) -> dict[str, dict[int, float]]:
    """Return by metric the values of a run's document by step."""
    return {metric: curve(document, metric) for metric in document.metrics}
