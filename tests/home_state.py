"""What a tracking home holds, read from its tables and files without the project's own code.

A judge that shared the code it judges would share its mistakes.
"""

import contextlib
import fcntl
import hashlib
import sqlite3
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMES = ("wall_s", "images_per_s")  # metrics that no repetition repeats
TRIAL = "trial"  # the kind of runs that Optuna's samplers and not the command determine
NEVER = {
    "RUNNING": """
        SELECT run_uuid, name FROM runs WHERE status = 'RUNNING' AND lifecycle_stage = 'active'""",
    "logged models (0 UNSPECIFIED, 1 PENDING, 3 FAILED) with the state of their runs": """
        SELECT m.model_id, m.status, m.source_run_id, r.status
        FROM logged_models m LEFT JOIN runs r ON r.run_uuid = m.source_run_id
        WHERE m.status != 2 AND m.lifecycle_stage = 'active'""",
    "several values of a metric at a step": """
        SELECT run_uuid, key, step, count(*) FROM metrics WHERE key NOT LIKE 'system/%'
        GROUP BY run_uuid, key, step HAVING count(*) > 1""",
    "a latest metric that is no point of its curve": """
        SELECT l.run_uuid, l.key FROM latest_metrics l LEFT JOIN metrics m
        ON m.run_uuid = l.run_uuid AND m.key = l.key AND m.step = l.step AND m.value = l.value
        WHERE m.key IS NULL""",
}
OWNERS = {
    "artifacts": "SELECT run_uuid FROM runs",
    "artifacts/models": "SELECT model_id FROM logged_models WHERE status = 2",
    "checkpoints": "SELECT run_uuid FROM runs WHERE status != 'FINISHED'",
}


@dataclass(frozen=True)
class Run:
    """A run that is not deleted, with all that is recorded of it."""

    id: str
    kind: str
    name: str
    status: str
    params: frozenset[tuple[str, str]]
    curves: dict[str, dict[int, float | None]]
    artifacts: frozenset[str]
    models: tuple[str, ...]
    """A digest of the weights of every model that it gave."""

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name!r} ({self.id})"


@contextlib.contextmanager
def _database(home: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(home / "mlflow.db", timeout=60)) as database:
        yield database


def read(home: Path) -> list[Run]:
    """Return the runs of a home, the oldest first."""
    with _database(home) as database:
        tags = dict(database.execute("SELECT run_uuid, value FROM tags WHERE key = 'kind'"))
        params = defaultdict[str, set[tuple[str, str]]](set)
        for run_id, key, value in database.execute("SELECT run_uuid, key, value FROM params"):
            params[run_id].add((key, value))
        curves = defaultdict[str, dict[str, dict[int, float | None]]](lambda: defaultdict(dict))
        points = "SELECT run_uuid, key, step, value, is_nan FROM metrics"
        for run_id, key, step, value, is_nan in database.execute(points):
            curves[run_id][key][step] = None if is_nan else value
        models = defaultdict[str, list[str]](list)
        outputs = "SELECT source_id, destination_id FROM inputs WHERE source_type = 'RUN_OUTPUT'"
        for run_id, model_id in database.execute(outputs):
            models[run_id].append(_weights(home, model_id))
        runs = "SELECT run_uuid, name, status FROM runs WHERE lifecycle_stage = 'active'"
        return [
            Run(
                id=run_id,
                kind=tags.get(run_id, ""),
                name=name,
                status=status,
                params=frozenset(params[run_id]),
                curves=dict(curves[run_id]),
                artifacts=_files(home / "artifacts" / run_id / "artifacts"),
                models=tuple(models[run_id]),
            )
            for run_id, name, status in database.execute(f"{runs} ORDER BY start_time")
        ]


def _files(folder: Path) -> frozenset[str]:
    """Return the paths of the files in a folder that have any content."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    return frozenset(path.relative_to(folder).as_posix() for path in found)


def _weights(home: Path, model_id: str) -> str:
    """Return a digest of the names and bytes of all arrays of a stored model."""
    import h5py

    path = home / "artifacts" / "models" / model_id / "artifacts" / "data" / "model.keras"
    digest = hashlib.sha256()

    def add(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            digest.update(name.encode() + item[()].tobytes())

    try:
        with zipfile.ZipFile(path) as zipped, zipped.open("model.weights.h5") as file:
            h5py.File(file, "r").visititems(add)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        return f"none of {model_id}: {type(error).__name__}"
    return digest.hexdigest()[:12]


def violations(home: Path) -> list[str]:
    """Return what no home may hold once its commands have ended and `recover` was there."""
    return [*_in_tables(home), *_in_files(home)]


def _in_tables(home: Path) -> Iterator[str]:
    with _database(home) as database:
        for (row,) in database.execute("PRAGMA integrity_check"):
            if row != "ok":
                yield f"mlflow.db is damaged: {row}"
        for what, query in NEVER.items():
            rows = database.execute(query).fetchall()
            if rows:
                yield f"{what}: {len(rows)} times, as {rows[:3]}"
        for folder, query in OWNERS.items():
            known = {name for (name,) in database.execute(query)} | {"models"}
            there = {path.name for path in (home / folder).glob("*")}
            for name in sorted(there - known):
                yield f"a folder whose owner has no use for it: {folder}/{name}"


def _in_files(home: Path) -> Iterator[str]:
    live = home / "live"
    for path in live.glob("*"):
        if path.suffix != ".lock":
            yield f"left in live/: {path.name}"
        else:
            with path.open("r") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    yield f"a lock that is held: {path.name}"
    for path in home.rglob("*"):
        if path.name.startswith("half.") or path.suffix in (".half", ".new", ".orphan"):
            yield f"half a file: {path.relative_to(home)}"


def differences(expected: list[Run], found: list[Run]) -> list[str]:
    """Return where runs are not those of an unkilled command, each once, with the same content."""
    rows = {_identity(run): run for run in expected}
    wanted, there = Counter(map(_identity, expected)), Counter(map(_identity, found))
    said = [f"missing {n} times: {key[:3]}" for key, n in (wanted - there).items()]
    extra = {key[:3]: n for key, n in (there - wanted).items()}
    said += [f"{n} too many: {key}" for key, n in extra.items()]
    for run in found:
        if _identity(run) in rows:
            said += different(rows[_identity(run)], run)
    return said


def _identity(run: Run) -> tuple[Any, ...]:
    return run.status, run.kind, run.name, run.params


def different(expected: Run, found: Run) -> Iterator[str]:
    """Yield in what two runs of the same settings differ."""
    one, two = (_repeatable(run.curves) for run in (expected, found))
    for key in sorted(one.keys() | two.keys()):
        a, b = one.get(key, {}), two.get(key, {})
        if steps := sorted(a.keys() ^ b.keys()):
            yield f"{found.title}: {key} lacks, or has too many, steps {steps[:9]}"
        elif wrong := [step for step in a if a[step] != b[step]]:
            step = wrong[0]
            yield f"{found.title}: {key} at step {step} is {b[step]} and not {a[step]}"
    if expected.artifacts != found.artifacts:
        yield f"{found.title}: artifacts {sorted(expected.artifacts ^ found.artifacts)}"
    if expected.models != found.models:
        yield f"{found.title}: models {found.models} and not {expected.models}"


def _repeatable(curves: dict[str, dict[int, float | None]]) -> dict[str, dict[int, float | None]]:
    """Leave out system metrics and the values, not the steps, of what tells the time."""
    return {
        key: dict.fromkeys(curve) if key.rpartition("/")[2] in TIMES else curve
        for key, curve in curves.items()
        if not key.startswith("system/")
    }


def study_violations(home: Path, storage: str, goal: int, expected: list[Run]) -> list[str]:
    """Return what is wrong with a study: its trials in Optuna, their runs, and its own run.

    A trial that was killed is tried again as it is; killed once more, another takes its place.
    Whatever was drawn as in the unkilled study must have come out as there.
    """
    from optuna import load_study

    from tuning.storage.storage import connect, resolve_url

    trials = load_study(study_name="s", storage=connect(resolve_url(storage))).get_trials(
        deepcopy=False
    )
    states = Counter(trial.state.name for trial in trials)
    said = [] if states["COMPLETE"] == goal else [f"{goal} trials are asked for: {states}"]
    said += [f"trials that have not ended: {states}"] if set(states) - {"COMPLETE", "FAIL"} else []
    ended = [trial for trial in trials if trial.state.name == "COMPLETE"]
    points = [repr(sorted(trial.params.items())) for trial in ended]
    said += [f"a trial counted twice: {p}" for p, n in Counter(points).items() if n > 1]
    runs = read(home)
    finished = [run for run in runs if run.status == "FINISHED"]
    own = {run.id for run in finished if run.kind == TRIAL}
    if own != {trial.user_attrs.get("run_id") for trial in ended} or len(own) != goal:
        said.append(f"the finished trials' runs are not {goal} runs, each once: {sorted(own)}")
    drawn = {run.params: run for run in expected if run.kind == TRIAL}
    said += [
        line
        for run in finished
        if run.kind == TRIAL and run.params in drawn
        for line in different(drawn[run.params], run)
    ]
    said += [f"{r.title} is {r.status}" for r in runs if r.kind != TRIAL and r not in finished]
    studies = [run for run in finished if run.kind == "study"]
    if len(studies) != 1 or len(studies[0].curves.get("trial_error_pct", ())) != goal:
        said.append(f"there must be one run of the study, with {goal} errors: {studies}")
    return said
