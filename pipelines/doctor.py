"""The doctor: what works on this machine, what does not, what that costs and how to mend it.

A check returns a finding; one that raises is itself found ill. Those of what is stored are in
checkups.py and running.py. "ill": claims are wrong or commands fail; "note": it costs something.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pipelines import checkups, provenance, running
from pipelines.checkups import Finding, nearest, sentence

PYTHON = (3, 11)  # what requirements*.txt are compiled for
GB = 1e9
LEAST_MEMORY = 1.5 * GB  # what a training on CIFAR-10 takes at cpu scale, as measured
LEAST_DISK = 1 * GB  # the models of twenty trials of HM's network, 54 MB each
GPUS: dict[str, Callable[[Any], int]] = {
    "tensorflow": lambda tf: len(tf.config.list_physical_devices("GPU")),
    "jax": lambda jax: sum(device.platform != "cpu" for device in jax.devices()),
    "torch": lambda torch: torch.cuda.device_count(),
}
FOR_GPUS = {"tensorflow": "tensorflow[and-cuda]", "jax": "jax[cuda13]", "torch": "torch"}
CLOSE = 1e-4  # between weights on one and on two devices, in float32
STEPS = 8


def examine(quick: bool) -> dict[str, Any]:
    """The JSON document of all checks; `quick` leaves out training on two devices.

    A check that builds on one that is ill is left out too.
    """
    found: dict[str, Finding] = {}
    for name, check in CHECKS.items():
        needed = found.get(NEEDS.get(name, ""))
        if not (needed and needed.state == "ill") and not (quick and check is two_devices):
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
    """Whether this is the Python that the packages are pinned for."""
    found = f"{sys.version.split()[0]}, {sys.executable}"
    if sys.version_info[:2] == PYTHON:
        return Finding("well", found)
    wanted = ".".join(map(str, PYTHON))
    costs = f"packages are pinned for Python {wanted}; others may not work together"
    return Finding("ill", found, costs, f"rm -r .venv; make setup PYTHON=/path/to/python{wanted}")


def packages() -> Finding:
    """Installed packages against the pins: those of JAX alone where TensorFlow is not installed."""
    from packaging.requirements import Requirement

    file = _pins()
    pins = [Requirement(line) for line in file.read_text().splitlines() if line[:1].isalnum()]
    pins = [pin for pin in pins if pin.marker is None or pin.marker.evaluate()]
    installed = {pin.name: provenance.version(pin.name) for pin in pins}
    missing = [str(pin) for pin in pins if installed[pin.name] is None]
    differing = [
        f"{pin.name} {version} for {pin.specifier}"
        for pin in pins
        if (version := installed[pin.name]) and not pin.specifier.contains(version, True)
    ]
    if not missing and not differing:
        return Finding("well", f"{len(pins)} as pinned in {file.name}")
    texts = {"missing": missing, "other versions": differing}
    found = "; ".join(f"{title}: {', '.join(some)}" for title, some in texts.items() if some)
    mend = f"{sys.executable} -m pip install -r {file}"
    if missing:
        return Finding("ill", found, "commands that need them fail", mend)
    costs = "numbers may differ from those recorded with the pinned versions"
    return Finding("note", found, costs, mend)


def _pins() -> Path:
    """The requirement file of this environment."""
    return provenance.ROOT / f"requirements{'' if find_spec('tensorflow') else '-jax'}.txt"


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


def backend() -> Finding:
    """What trains: the backend, the GPUs it sees, the CPU cores this process may use."""
    from pipelines import quiet

    quiet.keras()
    name = quiet.backend()
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
    from pipelines import data, store

    places = {"runs": store.home(), "data": data.data_home()}
    free = {title: shutil.disk_usage(nearest(place)).free for title, place in places.items()}
    found = ", ".join(f"{free[key] / GB:.1f} GB free for {key} in {places[key]}" for key in free)
    if min(free.values()) >= LEAST_DISK:
        return Finding("well", found)
    costs = f"a full disk stops recording; a study of twenty models takes {LEAST_DISK / GB:g} GB"
    mend = "make room, or take other places: MLFLOW_TRACKING_URI for runs, --data-dir for data"
    return Finding("ill", found, costs, mend)


def two_devices() -> Finding:
    """Whether two CPU devices train as one does, in a process of its own, recording nothing."""
    from pipelines import quiet

    if quiet.backend() == "torch":
        return Finding("well", "PyTorch trains on one device")
    print("Training on two devices takes half a minute; --quick leaves it out.", file=sys.stderr)
    environment = {key: value for key, value in os.environ.items() if key != "TF_CONFIG"}
    environment |= {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
    source = "from pipelines import doctor; print(doctor.disagreement())"
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=provenance.ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = (done.stderr if done.returncode else done.stdout).strip().splitlines() or ["nothing"]
    if done.returncode == 0 and float(said[-1]) < CLOSE:
        return Finding("well", f"weights after {STEPS} steps differ by {float(said[-1]):.1g}")
    found = f"weights after {STEPS} steps on 1 and 2 devices must agree to {CLOSE:g}: {said[-1]}"
    costs = "what several devices or machines train is not what one trains"
    mend = f"{sys.executable} -m pip install -r {_pins()}; until then train with --devices 1"
    return Finding("ill", found, costs, mend)


def disagreement() -> float:
    """Largest difference between the weights that two logical CPU devices train and one does."""
    import numpy as np

    from pipelines import data, published, quiet

    quiet.keras()
    from pipelines import devices, train
    from pipelines.training_job import assembled

    weights = []
    for count in (2, 1):  # several can only be made before the first training
        recipe = published.named("linear-teacher", "smoke").override(steps=STEPS, devices=count)
        place = devices.place(recipe)
        splits = data.load(recipe.data, recipe.train_examples, recipe.data_args)
        job = assembled(recipe, splits, place)
        trained = train.train(job, lambda metrics, step: None, test=False)
        weights.append(trained.model.get_weights())
    return float(np.max([np.abs(two - one).max() for two, one in zip(*weights, strict=True)]))


CHECKS: dict[str, Callable[[], Finding]] = {
    "Python": python,
    "packages": packages,
    "project code": code,
    "backend": backend,
    "tracking store": checkups.tracking_store,
    "running runs": running.running,
    "artifacts": checkups.artifacts,
    "studies": checkups.studies,
    "data sets": checkups.data_sets,
    "memory": memory,
    "disk": disk,
    "two devices": two_devices,
}
NEEDS = {
    "running runs": "tracking store",
    "artifacts": "tracking store",
    "studies": "tracking store",
    "data sets": "backend",
    "two devices": "backend",
}
