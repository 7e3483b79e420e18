"""Digests of the code that a claim's numbers and its verdict depend on."""

import functools
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from pipelines.measurement.claim_catalog import load, locate, own_file
from pipelines.running import code_digest
from pipelines.runtime.places import ROOT

JUDGING = (
    "pipelines.measurement.claim",
    "pipelines.measurement.verdict",
    "pipelines.running.seed_statistics",
)
STUDIES = (  # commands of their own, which a claim may run
    "tuning.analysis.trial_results",
    "tuning.analysis.tunability",
    "tuning.search.samplers",
    "tuning.search.spaces",
)


def of_claim(name: str, backend_name: str | None = None) -> str:
    """Return the digest of the code that measures a cell of the claim (None: on this backend)."""
    return code_digest.digest_of(_measuring(name), backend_name)


@functools.cache
def _measuring(name: str) -> dict[str, str]:
    module, own = locate(name)[0], own_file(name)
    return measuring_modules(module, load(name).trains, elsewhere={module: own} if own else {})


def measuring_modules(
    module: str,
    trains: bool,
    root: Path = ROOT,
    elsewhere: Mapping[str, Path] = MappingProxyType({}),
) -> dict[str, str]:
    """Return by name the modules that the numbers of a claim's module come from, as text.

    `elsewhere` has its file where that is a person's own.
    """
    roots = [module, *(code_digest.training_roots(root) if trains else [])]
    texts = code_digest.modules(roots, root, elsewhere=elsewhere)
    if "pipelines.claims._search" in texts:
        texts |= code_digest.modules(STUDIES, root)
    return texts


@functools.cache
def of_verdict(name: str) -> str:
    """Return the digest of the code that measures the claim, judges it and draws its figure.

    Of the claim's own module that is all that stands there.
    """
    path = own_file(name) or code_digest.find(locate(name)[0])
    judging = {each: code_digest.modules([each], followed=[each])[each] for each in JUDGING}
    whole = {"whole": path.read_text() if path else ""}
    return code_digest.digest_of({**_measuring(name), **judging, **whole})
