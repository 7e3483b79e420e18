"""The doctor: what works on this machine, what does not, what that costs and how to fix it.

A check returns a finding; what it raises is a problem. "problem": claims are wrong or commands
fail; "note": it costs something. By default nothing is loaded that takes seconds: TensorFlow, and
one example of every data set, are for a thorough examination.
"""

import itertools
import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit
from urllib.request import url2pathname

from pipelines import __version__
from pipelines.errors import Unavailable, UserError
from pipelines.runtime import places, provenance
from pipelines.runtime.plain_table import print_prose

SUPPORTED_PYTHONS = ("3.11", "3.12", "3.13")  # what requirements*.txt are compiled for
STATES = ("ok", "note", "problem")
GB = 1e9
MIN_MEMORY_BYTES = 1.5 * GB  # what a training on CIFAR-10 takes at cpu scale, as measured
MIN_DISK_BYTES = 1 * GB  # the models of twenty trials of HM's network, 54 MB each
GPUS: dict[str, Callable[[Any], int]] = {
    "tensorflow": lambda tf: len(tf.config.list_physical_devices("GPU")),
    "jax": lambda jax: sum(device.platform != "cpu" for device in jax.devices()),
    "torch": lambda torch: torch.cuda.device_count(),
}
GPU_PACKAGES = {"tensorflow": "tensorflow[and-cuda]", "jax": "jax[cuda13]", "torch": "torch"}
REACH_STORE = (
    "start its server, or set MLFLOW_TRACKING_URI to a store that can be written; without it, "
    "runs go to the project's own database"
)


@dataclass(frozen=True)
class Finding:
    """The finding of a check and, where it is a problem or a note, its costs and its fix."""

    state: Literal["ok", "note", "problem"]
    found: str
    costs: str = ""
    fix: str = ""


def describe_error(error: Exception) -> str:
    """Return what went wrong, in one line."""
    first = str(error).strip().partition("\n")[0]
    ours = isinstance(error, UserError | Unavailable)
    return first if ours else f"{type(error).__name__}: {first}"


def nearest_existing(folder: Path) -> Path:
    """Return the folder, or the closest one above it that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def reason_unwritable(folder: Path) -> str:
    """Return why no file can be made in the folder, or where it would be; empty if one can."""
    try:
        with tempfile.TemporaryFile(dir=nearest_existing(folder)) as probe:
            probe.write(b"doctor")
    except OSError as error:
        return f"{folder}: {error.strerror}"
    return ""


def examine(
    report: Callable[[dict[str, Any]], None] | None = None, thorough: bool = False
) -> dict[str, Any]:
    """Return the JSON document of all checks but those that need one with a problem.

    `report` gets the row of each check as it ends.
    """
    findings: dict[str, Finding] = {}
    for name, check in (CHECKS | (THOROUGH if thorough else {})).items():
        needed = findings.get(NEEDS.get(name, ""))
        if not (needed and needed.state == "problem"):
            try:
                findings[name] = check()
            except Exception as error:
                findings[name] = Finding(
                    "problem",
                    describe_error(error),
                    "it could not be examined, nor what builds on it",
                    "fix what the sentence names, then repeat python -m pipelines doctor",
                )
            if report:
                report({"check": name, **asdict(findings[name])})
    healthy = all(finding.state != "problem" for finding in findings.values())
    checks = [{"check": name, **asdict(finding)} for name, finding in findings.items()]
    return {"healthy": healthy, "checks": checks}


def show_row(row: Mapping[str, Any]) -> None:
    """Print what a check found; below a problem and a note, what it costs and its fix."""
    width = max(map(len, CHECKS))
    set_in = " " * (width + 11)
    print_prose(f"{row['state']:<7}  {row['check']:<{width}}  {row['found']}", after=set_in)
    if row["costs"]:
        print_prose(f"costs: {row['costs']}", set_in, after=f"{set_in}  ")
    for step in filter(None, row["fix"].split("; ")):
        print(f"{set_in}fix:  {step}")  # a command stays whole, to be pasted
    sys.stdout.flush()


def show_counts(document: Mapping[str, Any]) -> None:
    """Print whether all is well, once the checks are printed."""
    counts = [f"{sum(row['state'] == s for row in document['checks'])} {s}" for s in STATES]
    verdict = "healthy" if document["healthy"] else "not healthy"
    print(f"\n{verdict}: {', '.join(counts)}")


def check_python() -> Finding:
    """Check that the packages are pinned for this Python."""
    found = f"{sys.version.split()[0]}, {sys.executable}"
    if f"{sys.version_info.major}.{sys.version_info.minor}" in SUPPORTED_PYTHONS:
        return Finding("ok", found)
    costs = f"packages are pinned for {', '.join(SUPPORTED_PYTHONS)}; others may not work together"
    fix = f"rm -r .venv; make setup PYTHON=/path/to/python{SUPPORTED_PYTHONS[0]}"
    if not places.is_checkout():
        fix = f"install the package for Python {SUPPORTED_PYTHONS[0]}"
    return Finding("problem", found, costs, fix)


def check_code() -> Finding:
    """Check that the commit that runs are recorded with is the whole code."""
    commit = provenance.tags()["commit"]
    if not places.is_checkout():
        return _check_package(commit)
    if commit.startswith("unknown"):
        costs = "runs do not say which code made their numbers"
        return Finding("note", "no git history", costs, "git clone the project; install git")
    if not commit.endswith(provenance.CHANGES):
        return Finding("ok", f"{commit}, no uncommitted changes")
    found = f"{commit.removesuffix(provenance.CHANGES)} with uncommitted changes"
    costs = "runs carry the changes as a patch; the commit alone does not repeat them"
    return Finding("note", found, costs, "git commit")


def _check_package(commit: str) -> Finding:
    """Check that an installed package knows the commit that it was built of."""
    found = f"{places.NAME} {__version__}, installed in {places.ROOT}"
    fix = "build the package in a git clone without changes, and install that"
    if commit == __version__:
        costs = "runs name this version, and not the commit of the code that made their numbers"
        return Finding("note", f"{found}, of no known commit", costs, fix)
    found += f", of commit {commit}"
    if commit.endswith(provenance.CHANGES):
        return Finding("note", found, "no run has the changes that are not in the commit", fix)
    return Finding("ok", found)


def check_evidence() -> Finding:
    """Check that the project's results and evidence are here."""
    from pipelines.results import published
    from pipelines.tracking.bundles import file_format

    folder = places.published_folder()
    bundles, results = [*folder.glob("mlruns/evidence/*.zip")], folder / published.FILE
    found = f"{len(bundles)} bundles in {folder / 'mlruns' / 'evidence'}, and {results}"
    again = places.restore_published()
    if not (bundles and published.read(results)["claims"]):
        costs = "list, show and report have no verdicts of the project's, and nothing is compared"
        return Finding("problem", f"of {found} something is lacking", costs, again)
    damaged = []
    for file in bundles:
        try:
            file_format.read_manifest(file)
        except UserError:
            damaged.append(str(file))
    if damaged:
        found = f"of {found} these are no whole bundles: {', '.join(damaged)}"
        costs = "the runs of the project that were in them are in no table"
        return Finding("problem", found, costs, f"move them away, then {again}")
    if not places.is_checkout():
        found += "; evidence add, evidence work and report --publish need a checkout"
    return Finding("ok", found)


def check_backend(load: bool = False) -> Finding:
    """Check the backend, the GPUs it sees and the CPU cores this process may use.

    It is loaded where that is asked for, and where the machine has a GPU that it may not see.
    """
    from pipelines.runtime import backend

    has_driver = shutil.which("nvidia-smi") is not None
    is_loaded = load or has_driver
    try:
        backend.keras() if is_loaded else backend.check()
    except UserError as error:
        costs = "no network is trained, and gradient-formula needs TensorFlow; results can be read"
        fix = f"name another by KERAS_BACKEND, or: {places.tensorflow_installation()}"
        return Finding("problem", describe_error(error), costs, fix)
    name = backend.name()
    gpus = GPUS[name](import_module(name)) if is_loaded else 0
    cores = provenance.count_cores()
    seen = f"{gpus} GPUs" if is_loaded else "no NVIDIA driver"
    found = f"{name} {provenance.version(name)}, {seen}, {cores} CPU cores"
    if gpus:
        return Finding("ok", found)
    costs = "networks train on the CPU: minutes at cpu scale, days to years at paper scale"
    if has_driver:
        costs = f"{name} does not see the GPU that nvidia-smi belongs to; {costs}"
    fix = f"on a machine with a GPU: {sys.executable} -m pip install '{GPU_PACKAGES[name]}'"
    return Finding("note", found, costs, fix)


def check_memory() -> Finding:
    """Check that the free memory is enough for a training at cpu scale."""
    import psutil

    free = psutil.virtual_memory().available
    found = f"{free / GB:.1f} GB free"
    if free >= MIN_MEMORY_BYTES:
        return Finding("ok", found)
    costs = f"a training on CIFAR-10 takes {MIN_MEMORY_BYTES / GB:g} GB and would be killed"
    return Finding(
        "problem", found, costs, "end other programs, or take a machine with more memory"
    )


def check_disk() -> Finding:
    """Check that there is room for runs and data."""
    from pipelines.data import datasets
    from pipelines.tracking import store

    places = {"runs": store.home(), "data": datasets.data_home()}
    free = {
        title: shutil.disk_usage(nearest_existing(place)).free for title, place in places.items()
    }
    found = ", ".join(f"{free[key] / GB:.1f} GB free for {key} in {places[key]}" for key in free)
    if min(free.values()) >= MIN_DISK_BYTES:
        return Finding("ok", found)
    costs = (
        f"a full disk stops recording; a study of twenty models takes {MIN_DISK_BYTES / GB:g} GB"
    )
    fix = "make room, or take other places: MLFLOW_TRACKING_URI for runs, --data-dir for data"
    return Finding("problem", found, costs, fix)


def check_tracking_store() -> Finding:
    """Check that runs can be recorded: the store answers, takes a tag and gives it back.

    What the project did not make is not written to: of a store without its runs, that it answers.
    """
    from pipelines.tracking import store

    where = store.display_uri()
    try:
        client, written = store.client(), False
        for experiment in [*filter(store.is_ours, client.search_experiments())][:1]:
            key, written = f"doctor.{secrets.token_hex(4)}", True
            client.set_experiment_tag(experiment.experiment_id, key, "can be written")
            client.delete_experiment_tag(experiment.experiment_id, key)
        found = f"{where}: it can be {'written' if written else 'read'}"
    except Exception as error:
        reason = describe_error(error).replace(store.uri(), where)
        reason = reason if where in reason else f"{where}: {reason}"
        costs = "no run can be recorded or looked up; what is recorded has not been examined"
        return Finding("problem", reason, costs, REACH_STORE)
    return Finding("ok", found)


def check_runs() -> Finding:
    """Check that no run of a dead process says RUNNING and that all journals were delivered."""
    from pipelines.tracking import journals, recovery, store

    folder = store.home() / "live"
    dead = {path.stem for path in journals.find_stale(folder, store.uri())}
    dead |= recovery.dead_without_journal().keys()
    if dead:
        found = f"of {len(dead)} runs the processes have died, and they say RUNNING"
        costs = "they are missing from tables and verdicts, their last numbers from their curves"
        return Finding("note", found, costs, "python -m pipelines recover")
    if aside := list(folder.glob(f"*{recovery.UNDELIVERABLE}")):
        found = f"{len(aside)} journals are put aside, of runs that were deleted"
        costs = "what the store refused of them is in no run, and takes room"
        place = f"{folder}/*{recovery.UNDELIVERABLE}"
        fix = f"look at {place}, then delete them, with the folders of that name"
        return Finding("note", found, costs, fix)
    return Finding("ok", "none says RUNNING whose process has died")


def check_artifacts() -> Finding:
    """Check that figures, models and patches can be written, and those of runs be found."""
    from pipelines.results import reference_runs
    from pipelines.tracking import history, store
    from pipelines.tracking.bundles import exporting

    urls = [
        urlsplit(experiment.artifact_location)
        for experiment in store.client().search_experiments()
        if store.client().search_runs([experiment.experiment_id], max_results=1)
    ]
    folders = {Path(url2pathname(url.path)) for url in urls if url.scheme in ("", "file")}
    folders |= set() if store.is_server() else {store.home() / "artifacts"}
    if unwritable := [why for folder in folders if (why := reason_unwritable(folder))]:
        found = f"it must be possible to write {'; '.join(unwritable)}"
        costs = "runs fail as soon as they record a figure or a model"
        fix = "change its permissions, or choose another store with MLFLOW_TRACKING_URI"
        return Finding("problem", found, costs, fix)
    models = exporting.models_by_run()
    without_files = f"tags.kind != 'setting' and tags.kind != '{reference_runs.KIND}'"
    missing = [
        place
        for run in history.search(f"attributes.status = 'FINISHED' and {without_files}")
        for place in exporting.missing_files(run, models.get(run.info.run_id, []))
    ]
    if missing:
        return Finding(
            "problem",
            f"{len(missing)} runs and models have no files; the first: none at {missing[0]}",
            "their figures, models and packages cannot be read, exported or registered",
            "put the files back there; python -m pipelines export FILE --without-artifacts saves "
            "the numbers alone",
        )
    listed = ", ".join(sorted(map(str, folders)))
    return Finding("ok", f"{listed}: can be written" if folders else "the server keeps them")


def check_studies() -> Finding:
    """Check that the journals of studies are whole."""
    from pipelines.tracking import store

    files = sorted(store.home().glob("optuna*.journal"))
    broken = []
    for path in files:
        for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
            try:
                json.loads(line if line.endswith(b"\n") else b"0")  # another may write the last
            except ValueError as error:
                broken.append(f"{path}: line {number}: {error}")
                break
    if broken:
        costs = "studies can be neither continued nor shown"
        fix = "move it away; python -m tuning show STUDY then copies a finished one from its run"
        return Finding("problem", "; ".join(broken), costs, fix)
    return Finding("ok", f"whole: {', '.join(map(str, files))}" if files else "none yet")


def check_schedule() -> Finding:
    """Check that the schedule's database can be read."""
    from pipelines.scheduling import engine, schedule
    from pipelines.tracking import store

    if not os.environ.get("SCHEDULE_STORAGE") and not (store.home() / "schedule.db").exists():
        return Finding("ok", "none yet")
    with engine.open_client() as client:
        jobs = [job.name for job, _ in schedule.read_jobs(client)]
    return Finding("ok", f"jobs: {', '.join(jobs) or 'none'}")


def check_data_sets(read: bool = False) -> Finding:
    """Check which data sets are there, and which claims cannot run without the others.

    One example of every part is read where that is asked for.
    """
    from pipelines.data import datasets, integrity
    from pipelines.measurement import claim_catalog

    home, rows = datasets.data_home(), integrity.check(read)["data"]
    states = {row["name"]: row["state"] for row in rows}
    prepare = f"python -m pipelines data prepare {{}} --data-dir {home}"
    if broken := [row["name"] for row in rows if "why" in row]:
        found = f"cannot be read in {home}: {', '.join(broken)}"
        own = "name your own pictures again by --data"
        steps = [prepare.format(name) if name in datasets.DATASETS else own for name in broken]
        steps = ["python -m pipelines data says which files to delete", *dict.fromkeys(steps)]
        return Finding("problem", found, "recipes and claims on them fail", "; ".join(steps))
    where = f"{home}{'' if home.exists() else ' (not there yet)'}"
    found = f"{where}: " + ", ".join(f"{name} {state}" for name, state in states.items())
    if "on first use" in states.values() and (why := reason_unwritable(home)):
        costs = "data sets that need no download, digits among them, cannot be prepared there"
        fix = "choose another folder with --data-dir or TFDS_DATA_DIR"
        return Finding("problem", f"it must be possible to write {why}", costs, fix)
    missing = [name for name, state in states.items() if state == "not prepared"]
    needed_by: dict[str, list[str]] = {}
    for data_set, name in itertools.product(missing, claim_catalog.names()):
        scales = claim_catalog.load(name).scales
        uses = {scale for scale, each in scales.items() if getattr(each, "data", "") == data_set}
        if uses & {"cpu", "paper"}:
            about = name if "cpu" in uses else f"{name} (paper scale)"
            needed_by.setdefault(data_set, []).append(about)
    if not needed_by:
        return Finding("ok", found)
    costs = "; ".join(f"without {name} {', '.join(each)}" for name, each in needed_by.items())
    fix = "; ".join(map(prepare.format, needed_by))
    return Finding("note", found, f"do not run: {costs}", fix)


CHECKS: dict[str, Callable[[], Finding]] = {
    "Python": check_python,
    "project code": check_code,
    "evidence": check_evidence,
    "backend": check_backend,
    "tracking store": check_tracking_store,
    "running runs": check_runs,
    "artifacts": check_artifacts,
    "studies": check_studies,
    "schedule": check_schedule,
    "data sets": check_data_sets,
    "memory": check_memory,
    "disk": check_disk,
}
THOROUGH: dict[str, Callable[[], Finding]] = {
    "backend": partial(check_backend, load=True),
    "data sets": partial(check_data_sets, read=True),
}
NEEDS = {
    "running runs": "tracking store",
    "artifacts": "tracking store",
    "studies": "tracking store",
    "data sets": "backend",
}
