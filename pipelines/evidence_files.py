"""The files of the project's evidence: bundles in mlruns/evidence, each about one claim."""

from collections.abc import Collection
from pathlib import Path

from pipelines.runtime.provenance import ROOT
from pipelines.tracking.bundles import file_format
from pipelines.tracking.bundles.shape import Listed

FOLDER = ROOT / "mlruns" / "evidence"


def bundles(names: Collection[str] | None = None) -> list[Path]:
    """Return the files of the evidence: all, or those about the claims named."""
    return [f for f in sorted(FOLDER.glob("*.zip")) if names is None or subject(f) in names]


def subject(file: Path) -> str:
    """Return the claim that a bundle is about: `two-phases` of two-phases-3f2a9c01.zip."""
    return file.stem.rpartition("-")[0]


def rows(names: Collection[str] | None = None) -> list[Listed]:
    """Return what the manifests say of every run, of all claims or of those named."""
    return [row for file in bundles(names) for row in rows_of(file)]


def rows_of(file: Path) -> list[Listed]:
    """Return what the manifest of a bundle says of its runs."""
    return file_format.read_manifest(file).runs


def origins() -> set[str]:
    """Return the ids that the runs of the evidence had where they were measured."""
    return {row.origin for row in rows()}
