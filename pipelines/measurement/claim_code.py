"""Digests of the code that a claim's numbers and its verdict depend on."""

import functools
from pathlib import Path

from pipelines.measurement.claim_catalog import locate
from pipelines.runtime.code_digest import SILENT, Reach, digest_of, training_definitions
from pipelines.runtime.provenance import ROOT

CLAIM, VERDICT = "pipelines.measurement.claim", "pipelines.measurement.verdict"
EXPERIMENT = ("pipelines.measurement.experiment", "Experiment")
SEARCH_ROOTS = (  # of studies, which are run as commands of their own
    "tuning.analysis.trial_results:",
    "tuning.search._ranges:",
    "tuning.search.samplers:",
    "tuning.search.spaces:",
    "tuning.analysis.tunability:",
)
UNMEASURED_FIELDS = {  # of a claim: what it says, shows and is judged by, not what is measured
    *("about", "card", "charts", "costs", "decided_by", "derive", "expect", "extra_metrics"),
    *("family", "figure", "floors", "formula", "network", "price", "printed", "reported", "says"),
    *("scales", "seeds", "shown", "source", "unjudged_scales", "unstable", "words"),
}


def of_claim(name: str, backend_name: str | None = None) -> str:
    """Return the digest of the code that measures a cell of the claim (None: on this backend)."""
    return digest_of(_measuring(name), backend_name)


@functools.cache
def _measuring(name: str) -> tuple[str, ...]:
    return tuple(definitions(definition_of(name)).values())


@functools.cache
def of_verdict(name: str) -> str:
    """Return the digest of the code that measures the claim, judges it and draws its figure."""
    judging = Reach(ROOT, silent=set(SILENT) - {CLAIM, VERDICT})
    texts = judging.definitions([definition_of(name), f"{CLAIM}:Claim"])
    return digest_of([*_measuring(name), *texts.values()])


def definition_of(name: str) -> str:
    """Return where a claim is defined, as `module:name`."""
    return ":".join(locate(name))


def definitions(claim: str, root: Path = ROOT) -> dict[tuple[str, str], str]:
    """Return the definitions that the numbers of the claim `module:name` come from, as text."""
    reach = Reach(root, without=UNMEASURED_FIELDS, makers=[(CLAIM, "Theorem"), EXPERIMENT])
    texts = reach.definitions([claim])
    if EXPERIMENT in reach.silenced:
        texts |= training_definitions(root)
    if any(module == "pipelines.runtime.subcommands" for module, _ in reach.silenced):
        texts |= Reach(root).definitions(SEARCH_ROOTS)
    return texts
