"""The doctor: what works on this machine, what does not, what that costs and how to mend it.

A check returns a finding; one that raises is itself found ill. Those of what is stored are in
checkups.py. "ill": claims are wrong or commands fail; "note": it costs something.
"""

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from typing import Any

from pipelines.cli import _checks
from pipelines.cli._checks import Finding, nearest, sentence
from pipelines.runtime import provenance

PYTHONS = ("3.11", "3.12", "3.13")  # what requirements*.txt are compiled for
GB = 1e9
LEAST_MEMORY = 1.5 * GB  # what a training on CIFAR-10 takes at cpu scale, as measured
LEAST_DISK = 1 * GB  # the models of twenty trials of HM's network, 54 MB each
GPUS: dict[str, Callable[[Any], int]] = {
    "tensorflow": lambda tf: len(tf.config.list_physical_devices("GPU")),
    "jax": lambda jax: sum(device.platform != "cpu" for device in jax.devices()),
    "torch": lambda torch: torch.cuda.device_count(),
}
FOR_GPUS = {"tensorflow": "tensorflow[and-cuda]", "jax": "jax[cuda13]", "torch": "torch"}


def examine() -> dict[str, Any]:
    """Return the JSON document of all checks but those that build on one that is ill."""
    found: dict[str, Finding] = {}
    for name, check in CHECKS.items():
        needed = found.get(NEEDS.get(name, ""))
        if not (needed and needed.state == "ill"):
            found[name] = _attempted(check)
    healthy = all(finding.state != "ill" for finding in found.values())
    checks = [{"check": name, **asdict(finding)} for name, finding in found.items()]
    return {"healthy": healthy, "checks": checks}


def _attempted(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Exception as error:
        return Finding(
            "ill",
            sentence(error),
            "it could not be examined, nor what builds on it",
            "mend what the sentence names, then repeat python -m pipelines doctor",
        )


def show(document: dict[str, Any]) -> None:
    """The checks in the terminal, aligned; below what is not well, what it costs and its mend."""
    checks = document["checks"]
    width = max(len(row["check"]) for row in checks)
    for row in checks:
        print(f"{row['state']:<4}  {row['check']:<{width}}  {row['found']}")
        for key in ("costs", "mend"):
            if row[key]:
                print(f"{'':<{width + 8}}{key + ':':<7}{row[key]}")
    counts = [f"{sum(row['state'] == s for row in checks)} {s}" for s in ("well", "note", "ill")]
    verdict = "healthy" if document["healthy"] else "not healthy"
    print(f"\n{verdict}: {', '.join(counts)}")


def python() -> Finding:
    """Whether this is a Python that the packages are pinned for."""
    found = f"{sys.version.split()[0]}, {sys.executable}"
    if f"{sys.version_info.major}.{sys.version_info.minor}" in PYTHONS:
        return Finding("well", found)
    costs = f"packages are pinned for Python {', '.join(PYTHONS)}; others may not work together"
    mend = f"rm -r .venv; make setup PYTHON=/path/to/python{PYTHONS[0]}"
    return Finding("ill", found, costs, mend)


def code() -> Finding:
    """Which commit runs are recorded with, and whether it is the whole code."""
    commit = provenance.tags()["commit"]
    if commit.startswith("unknown"):
        costs = "runs do not say which code made their numbers"
        return Finding("note", "no git history", costs, "git clone the project; install git")
    if not commit.endswith("+changes"):
        return Finding("well", f"{commit}, no uncommitted changes")
    found = f"{commit.removesuffix('+changes')} with uncommitted changes"
    costs = "runs carry the changes as a patch; the commit alone does not repeat them"
    return Finding("note", found, costs, "git commit")


def training_backend() -> Finding:
    """What trains: the backend, the GPUs it sees, the CPU cores this process may use."""
    from pipelines.runtime import backend

    backend.keras()
    name = backend.backend()
    gpus = GPUS[name](import_module(name))
    usable = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if usable else os.cpu_count()
    found = f"{name} {provenance.version(name)}, {gpus} GPUs, {cores} CPU cores"
    if gpus:
        return Finding("well", found)
    costs = "networks train on the CPU: minutes at cpu scale, days to years at paper scale"
    if shutil.which("nvidia-smi"):
        costs = f"{name} does not see the GPU that nvidia-smi belongs to; {costs}"
    mend = f"on a machine with a GPU: {sys.executable} -m pip install '{FOR_GPUS[name]}'"
    return Finding("note", found, costs, mend)


def memory() -> Finding:
    """Whether the free memory is enough for a training at cpu scale."""
    import psutil

    free = psutil.virtual_memory().available
    found = f"{free / GB:.1f} GB free"
    if free >= LEAST_MEMORY:
        return Finding("well", found)
    costs = f"a training on CIFAR-10 takes {LEAST_MEMORY / GB:g} GB and would be killed"
    return Finding("ill", found, costs, "end other programs, or take a machine with more memory")


def disk() -> Finding:
    """Whether there is room for runs and data."""
    from pipelines.data import datasets
    from pipelines.tracking import store

    places = {"runs": store.home(), "data": datasets.data_home()}
    free = {title: shutil.disk_usage(nearest(place)).free for title, place in places.items()}
    found = ", ".join(f"{free[key] / GB:.1f} GB free for {key} in {places[key]}" for key in free)
    if min(free.values()) >= LEAST_DISK:
        return Finding("well", found)
    costs = f"a full disk stops recording; a study of twenty models takes {LEAST_DISK / GB:g} GB"
    mend = "make room, or take other places: MLFLOW_TRACKING_URI for runs, --data-dir for data"
    return Finding("ill", found, costs, mend)


CHECKS: dict[str, Callable[[], Finding]] = {
    "Python": python,
    "project code": code,
    "backend": training_backend,
    "tracking store": _checks.tracking_store,
    "running runs": _checks.runs,
    "artifacts": _checks.artifacts,
    "studies": _checks.studies,
    "data sets": _checks.data_sets,
    "memory": memory,
    "disk": disk,
}
NEEDS = {
    "running runs": "tracking store",
    "artifacts": "tracking store",
    "studies": "tracking store",
    "data sets": "backend",
}
