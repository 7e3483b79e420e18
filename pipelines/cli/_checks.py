"""What doctor.py examines of what is stored: the tracking store, artifacts, studies, data sets."""

import json
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit
from urllib.request import url2pathname

from pipelines.errors import Unavailable, UserError

REACH = (
    "start its server, or set MLFLOW_TRACKING_URI to a store that can be written; without it, "
    "runs go to the project's own database"
)


@dataclass(frozen=True)
class Finding:
    """What a check found; where not all is well, what that costs and how it is mended."""

    state: Literal["well", "note", "ill"]
    found: str
    costs: str = ""
    mend: str = ""


def sentence(error: Exception) -> str:
    """What went wrong, in one line."""
    first = str(error).strip().partition("\n")[0]
    ours = isinstance(error, UserError | Unavailable)
    return first if ours else f"{type(error).__name__}: {first}"


def nearest(folder: Path) -> Path:
    """The folder, or the closest one above it that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def refusal(folder: Path) -> str:
    """Why no file can be made in the folder, or where it would be made; empty if one can."""
    try:
        with tempfile.TemporaryFile(dir=nearest(folder)) as probe:
            probe.write(b"doctor")
    except OSError as error:
        return f"{folder}: {error.strerror}"
    return ""


def tracking_store() -> Finding:
    """Whether runs can be recorded: the store answers, takes a tag and gives it back."""
    from pipelines.tracking import store

    where = store.shown()
    try:
        _write_and_undo(store.client())
        database = store.sql_store()
        found = f"{where}: it can be written"
    except Exception as error:
        said = sentence(error).replace(store.uri(), where)
        said = said if where in said else f"{where}: {said}"
        costs = "no run can be recorded or looked up; what is recorded has not been examined"
        return Finding("ill", said, costs, REACH)
    if database is not None:
        return Finding("well", f"{found}, in tables of revision {store.REVISION}")
    slow = "sweeps write their runs one by one, many times slower than in bulk"
    if store.served():
        mend = "for a large sweep set MLFLOW_TRACKING_URI to the database behind the server"
        return Finding("note", f"{found}, through a server", slow, mend)
    found += (
        f", in tables other than revision {store.REVISION}, which pipelines/tracking/store.py knows"
    )
    return Finding("note", found, slow, "make setup, which installs the MLflow of that revision")


def _write_and_undo(client: Any) -> None:
    """Set a tag on an experiment and take it back: all kinds of stores can do both."""
    for experiment in client.search_experiments(max_results=1):
        key = f"doctor.{secrets.token_hex(4)}"
        client.set_experiment_tag(experiment.experiment_id, key, "can be written")
        client.delete_experiment_tag(experiment.experiment_id, key)


def runs() -> Finding:
    """Whether runs of dead processes say RUNNING, and whether all journals could be delivered."""
    from pipelines.tracking import journals, recovery, store

    folder = store.home() / "live"
    dead = {path.stem for path in journals.leftovers(folder, store.uri())}
    dead |= recovery.dead_without_journal().keys()
    if dead:
        found = f"of {len(dead)} runs the processes have died, and they say RUNNING"
        costs = "they are missing from tables and verdicts, their last numbers from their curves"
        return Finding("note", found, costs, "python -m pipelines reap")
    if aside := list(folder.glob(f"*{recovery.ASIDE}")):
        found = f"{len(aside)} journals are put aside, of runs that were deleted"
        costs = "what the store refused of them is in no run, and takes room"
        mend = (
            f"look at {folder}/*{recovery.ASIDE}, then delete them, with the folders of that name"
        )
        return Finding("note", found, costs, mend)
    return Finding("well", "none says RUNNING whose process has died")


def artifacts() -> Finding:
    """Whether figures, models and patches can be written, and those of recorded runs be found."""
    from pipelines.tracking import store

    own = set() if store.served() else {store.home() / "artifacts"}
    places = own | _recorded_folders()
    if refused := [why for folder in places if (why := refusal(folder))]:
        found = f"it must be possible to write {'; '.join(refused)}"
        costs = "runs fail as soon as they record a figure or a model"
        mend = "change its permissions, or choose another store with MLFLOW_TRACKING_URI"
        return Finding("ill", found, costs, mend)
    if gone := _missing_files():
        return Finding(
            "ill",
            f"{len(gone)} runs and models have no files; the first: none at {gone[0]}",
            "their figures, models and packages cannot be read, exported or registered",
            "put the files back there; python -m pipelines export FILE --without-artifacts saves "
            "the numbers alone",
        )
    listed = ", ".join(sorted(map(str, places)))
    return Finding("well", f"{listed}: can be written" if places else "the server keeps them")


def _missing_files() -> list[str]:
    """Places where finished runs, but settings of sweeps, and stored models must have files."""
    from pipelines.tracking import history
    from pipelines.tracking.bundles import exporting

    models = exporting.models_by_run()
    runs = history.search("attributes.status = 'FINISHED' and tags.kind != 'setting'")
    return [
        place for run in runs for place in exporting.missing(run, models.get(run.info.run_id, []))
    ]


def _recorded_folders() -> set[Path]:
    """Folders in which experiments that hold runs keep their artifacts."""
    from pipelines.tracking import store

    client = store.client()
    found = client.search_experiments()
    used = [e for e in found if client.search_runs([e.experiment_id], max_results=1)]
    places = [urlsplit(experiment.artifact_location) for experiment in used]
    return {Path(url2pathname(p.path)) for p in places if p.scheme in ("", "file")}


def studies() -> Finding:
    """Whether the journals of studies are whole."""
    from pipelines.tracking import store

    files = sorted(store.home().glob("optuna*.journal"))
    if broken := [f"{path}: {why}" for path in files if (why := _damage(path))]:
        costs = "studies can be neither continued nor shown"
        mend = "move it away; python -m tuning show STUDY then copies a finished one from its run"
        return Finding("ill", "; ".join(broken), costs, mend)
    return Finding("well", f"whole: {', '.join(map(str, files))}" if files else "none yet")


def _damage(path: Path) -> str:
    """Return the first whole line of a journal that is no JSON; empty where all are."""
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        try:
            json.loads(line if line.endswith(b"\n") else b"0")  # another may be writing the last
        except ValueError as error:
            return f"line {number}: {error}"
    return ""


def data_sets() -> Finding:
    """Which data sets can be read, and which claims cannot run without the others."""
    from pipelines.data import datasets

    home, states, broken = datasets.data_home(), {}, {}
    for name in datasets.DATASETS:
        try:
            states[name] = str(datasets.check(name)["state"])
        except Exception as error:
            broken[name] = error
    if broken:
        return _unreadable(home, broken)
    where = f"{home}{'' if home.exists() else ' (not there yet)'}"
    found = f"{where}: " + ", ".join(f"{name} {state}" for name, state in states.items())
    if "on first use" in states.values() and (why := refusal(home)):
        costs = "data sets that need no download, digits among them, cannot be prepared there"
        mend = "choose another folder with --data-dir or TFDS_DATA_DIR"
        return Finding("ill", f"it must be possible to write {why}", costs, mend)
    missing = [name for name, state in states.items() if state == "not prepared"]
    lost = {name: ", ".join(claims) for name in missing if (claims := _claims(name))}
    if not lost:
        return Finding("well", found)
    without = "; ".join(f"without {name} {claims}" for name, claims in lost.items())
    return Finding("note", found, f"do not run: {without}", "; ".join(map(_prepare, lost)))


def _unreadable(home: Path, broken: dict[str, Exception]) -> Finding:
    """The finding where data are there and cannot be read."""
    steps = [
        "do what the sentence says"
        if isinstance(error, UserError | Unavailable)
        else f"move {home / name} away, then {_prepare(name)}"
        for name, error in broken.items()
    ]
    found = "; ".join(f"{name}: {sentence(error)}" for name, error in broken.items())
    costs = f"recipes and claims on {', '.join(broken)} fail"
    return Finding("ill", found, costs, "; ".join(dict.fromkeys(steps)))


def _prepare(name: str) -> str:
    from pipelines.data import datasets

    return f"python -m pipelines data prepare {name} --data-dir {datasets.data_home()}"


def _claims(data_set: str) -> list[str]:
    """Claims that read a data set at cpu scale, or, as they then say, at paper scale alone."""
    from pipelines.measurement import claim_catalog

    found = []
    for name in claim_catalog.names():
        scales = claim_catalog.load(name).scales
        uses = {scale for scale, each in scales.items() if getattr(each, "data", "") == data_set}
        if uses & {"cpu", "paper"}:
            found.append(name if "cpu" in uses else f"{name} (paper scale)")
    return found
