"""Tracked runs: `track` makes a run in MLflow, writes to it and closes it.

What is written goes to a journal first and to MLflow within seconds (outbox.py): a process that is
killed loses nothing; the next command delivers what is missing and closes the run (recovery.py).

An attempt at a scheduled job, or a pipeline, names its run in the environment of its commands.
Every run of such a command that has no parent in it becomes a child of that run. It stays in its
own experiment, and MLflow's UI nests runs within one experiment only: the page of the parent links
its children.
"""

import hashlib
import itertools
import json
import os
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.errors import Ended, Paused, Pruned, hide_passwords
from pipelines.runtime import backend, heartbeat, progress, provenance, signals
from pipelines.tracking import history, journals, store
from pipelines.tracking.outbox import FLUSH_S, MODEL_FOLDER, Outbox, send_batch

SYSTEM = "system/"  # begins the metrics of the machine, as MLflow calls them
FAILURE = "failure"  # tag: what ended a run early
BEGUN_WITH_CODE = "begun_with_code"  # tag of a run that other code began: its digest
FIGURE_STYLE: dict[str, Any] = {"dpi": 120, "metadata": {"Software": None}}  # used for every PNG
PARENT_VARIABLE = "PARENT_RUN"  # environment variable: the run that the runs of commands are below


@dataclass(frozen=True)
class Parent:
    """A run that others are children of; it may be written by another process."""

    id: str
    experiment: str


@dataclass
class Run:
    """A run that is being written; `track` makes one."""

    id: str
    name: str
    experiment: str
    outbox: Outbox
    system_metrics: bool = False
    """Whether `system_metrics` logs anything."""
    logged: dict[str, int] = field(default_factory=dict)
    """The last step by metric that an earlier process wrote, where the run was resumed."""
    known: set[tuple[str, int, float]] = field(default_factory=set)
    """Every metric, step and value that an earlier process wrote, where the run was resumed."""
    links: dict[str, list[str]] = field(default_factory=dict)
    """The runs and the studies that it names, by store.REUSED and store.STUDIED."""

    def log(self, metrics: Mapping[str, float], step: int = 0, when_ms: int | None = None) -> None:
        """Write down numbers of one step: in the journal at once, in MLflow within seconds.

        What is logged again for the same moment is kept once, and so is what an earlier process of
        the same run logged with the same value.
        """
        self._add([(key, value, step) for key, value in metrics.items()], when_ms)

    def log_new(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Log what is new if a training is repeated from a checkpoint: no step is written twice.

        A bar in the terminal shows its latest loss and error.
        """
        progress.show_numbers(metrics)
        new = {key: value for key, value in metrics.items() if step > self.logged.get(key, -1)}
        if new:
            self.log(new, step)

    def log_curve(self, metric: str, steps: Iterable[int], values: Iterable[float]) -> None:
        """Write down a whole curve over steps, as `log` does a number."""
        self._add([(metric, value, step) for step, value in zip(steps, values, strict=True)])

    def _add(self, points: list[tuple[str, float, int]], when_ms: int | None = None) -> None:
        now = int(time.time() * 1000) if when_ms is None else when_ms
        numbers = [(key, float(value), int(step), now) for key, value, step in points]
        self.outbox.add_numbers([n for n in numbers if (n[0], n[2], n[1]) not in self.known])

    def flush(self) -> None:
        """Send what waits now; what a store cannot take is tried again later."""
        self.outbox.flush()

    def tag(self, key: str, value: str) -> None:
        self.outbox.add_fact("tags", {key: value})

    def link(self, kind: str, name: str) -> None:
        """Name another run (store.REUSED) or a study (store.STUDIED) beside those named before."""
        names = self.links.setdefault(kind, [])
        if name not in names:
            names.append(name)
            self.outbox.add_fact("tags", store.link_tags(kind, names))

    def text(self, text: str, path: str) -> None:
        self.outbox.add_file(path, lambda place: place.write_text(text))

    def bytes(self, content: bytes, path: str) -> None:
        self.outbox.add_file(path, lambda place: place.write_bytes(content))

    def figure(self, figure: Any, path: str) -> None:
        """Write a matplotlib figure; equal figures are equal files."""
        self.outbox.add_file(path, lambda place: figure.savefig(place, **FIGURE_STYLE))

    def dataset(self, name: str, digest: str, description: Mapping[str, Any]) -> None:
        """Name the data this run trains on, for the data set column of the UI.

        `description` is what DataSet.describe says: source, shapes, profile.
        """
        self.outbox.add_fact("dataset", {"name": name, "digest": digest, **description})

    def model(self, model: Any, example: Any = None) -> None:
        """Store a Keras model that `mlflow.pyfunc.load_model(f"runs:/{id}/model")` reads back.

        `example` is an input [1, ...] that it answers. It opens without this project where every
        layer is Keras's own, as those of our networks are.
        """
        import mlflow.keras
        from mlflow.models import Model, ModelSignature
        from mlflow.types import Schema, TensorSpec

        def schema(tensor: Any, name: str | None = None) -> Schema:
            kind, shape = np.dtype(tensor.dtype), (-1, *tensor.shape[1:])
            return Schema([TensorSpec(kind, shape, **({"name": name} if name else {}))])

        def save(place: Path) -> None:
            place.mkdir()  # MLflow makes no folder for an example
            mlflow.keras.save_model(
                model,
                str(place),
                mlflow_model=about,
                signature=about.signature,
                input_example=example,
                pip_requirements=pins,
            )

        needed = ("keras", backend.name(), "mlflow")
        about = Model(run_id=self.id)
        gives = next((x.name for x in model.layers if x.name == "probabilities"), None)
        about.signature = ModelSignature(schema(model.input), schema(model.output, gives))
        pins = [f"{name}=={metadata.version(name)}" for name in needed]
        self.outbox.add_file(MODEL_FOLDER, save)


@contextmanager
def track(
    name: str,
    *,
    experiment: str,
    kind: str,
    params: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
    parent: Run | Parent | None = None,
    resume: str | None = None,
    system_metrics: bool = False,
) -> Iterator[Run]:
    """Open a run in MLflow for as long as the block lasts, with provenance; close it at its end.

    `kind` says what it is: claim, sweep, setting, training, seeds, study, trial, benchmark and
    others; `resume` continues a run by its id. Without a parent, it is below the run of the process
    that started this one, if there is one. Ends FINISHED; KILLED after Ctrl-C, a termination
    signal, Paused or Pruned; FAILED, with the traceback as an artifact, after any other exception,
    which goes on to the caller; of a command of ours that has failed, what it said.
    """
    where = store.uri()
    above = parent or inherited_parent()
    experiment = parent.experiment if parent else experiment  # the UI nests within one
    below = {store.PARENT: above.id} if above else {}
    all_tags = {**heartbeat.tags(), **below, "kind": kind, **(tags or {})}
    run_id = resume or _create(where, name, experiment, all_tags)
    journal = journals.Journal(store.home() / "live", run_id, where)
    run = Run(run_id, name, experiment, Outbox(run_id, name, journal), system_metrics)
    status = "FAILED"
    try:
        if not resume or _reopen(run, all_tags):
            _describe(run, params or {}, alone=parent is None, resumed=resume is not None)
        yield run
        status = "FINISHED"
    except (KeyboardInterrupt, SystemExit, Paused, Pruned):
        status = "KILLED"
        raise
    except Ended as error:
        with suppress(OSError, store.unavailable()):
            run.tag(FAILURE, hide_passwords(str(error))[:1000])
        raise
    except Exception as error:
        with suppress(OSError, store.unavailable()):  # the error itself is what the caller needs
            run.tag(FAILURE, hide_passwords(f"{type(error).__name__}: {error}")[:1000])
            run.text(hide_passwords(traceback.format_exc()), "traceback.txt")
        raise
    finally:
        with signals.defer():  # else a run that has ended would say RUNNING until the next command
            run.outbox.close(status)


def inherited_parent() -> Parent | None:
    """Return the run that the starter of this process named; None if none, or in another store."""
    with suppress(ValueError, KeyError, TypeError):  # others may have set the variable
        document = json.loads(os.environ.get(PARENT_VARIABLE, "{}"))
        if document["store"] == _store_digest():
            return Parent(document["id"], document["experiment"])
    return None


@contextmanager
def parent_of_commands(run: Run | Parent) -> Iterator[None]:
    """Make the runs of the commands that are started in the block children of a run."""
    before = os.environ.get(PARENT_VARIABLE)
    document = {"id": run.id, "experiment": run.experiment, "store": _store_digest()}
    os.environ[PARENT_VARIABLE] = json.dumps(document)
    try:
        yield
    finally:
        os.environ.pop(PARENT_VARIABLE, None)
        if before is not None:
            os.environ[PARENT_VARIABLE] = before


def _store_digest() -> str:
    """Return which store this is, without its password: a command may write into another one."""
    return hashlib.sha256(store.uri().encode()).hexdigest()[:16]


def _create(where: str, name: str, experiment: str, tags: Mapping[str, str]) -> str:
    created = store.client(where).create_run(
        store.experiment(where, experiment), run_name=name, tags={**provenance.tags(), **tags}
    )
    return str(created.info.run_id)


def _reopen(run: Run, tags: Mapping[str, str]) -> bool:
    """Make a run that ended early a running one again, under the code and process of now.

    False for one that this process has only created so far.
    """
    run.flush()  # what an earlier process did not come to deliver
    client = store.client()
    entity = client.get_run(run.id)
    if (
        entity.info.status == "RUNNING"
        and entity.data.tags.get(heartbeat.PROCESS) == tags[heartbeat.PROCESS]
    ):
        return False
    client.update_run(run.id, status="RUNNING", name=run.name)
    now, before = {**provenance.tags(), **tags}, entity.data.tags.get("code", tags.get("code"))
    if before != now.get("code"):
        now[BEGUN_WITH_CODE] = str(before)
    send_batch(run.id, tags=now)
    for kind in (store.REUSED, store.STUDIED):
        run.links[kind] = store.read_links(entity.data.tags, kind)
    for key in {FAILURE, heartbeat.SETTLED} & entity.data.tags.keys():
        client.delete_tag(run.id, key)
    numbers = [(key, value, step, 0) for _, key, step, _, value in history.points([run.id])]
    for key, value, step, _ in [*numbers, *run.outbox.journal.undelivered.numbers]:
        run.logged[key] = max(step, run.logged.get(key, step))
        run.known.add((key, step, value))
    return True


def _describe(run: Run, params: Mapping[str, Any], *, alone: bool, resumed: bool) -> None:
    """Write what a run begins with; of a resumed one, what a kill has left out.

    Children, which are not alone, share the process, packages and patch of their parent.
    """
    client = store.client()
    recorded = client.get_run(run.id).data.params if resumed else {}
    run.outbox.add_fact(
        "params", {k: str(value) for k, value in params.items() if k not in recorded}
    )
    if alone and not (resumed and client.list_artifacts(run.id, "provenance")):
        run.text(provenance.packages(), "provenance/packages.txt")
        if provenance.diff():
            run.text(provenance.diff() + "\n", "provenance/uncommitted.patch")


@contextmanager
def system_metrics(run: Run) -> Iterator[None]:
    """Log processor, memory, disk and network use under system/ for as long as the block lasts.

    Only of a run that was opened for it: the UI shows them before a training's own curves.
    """
    if not run.system_metrics:
        yield
        return
    store.client()
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

    monitor, ended = SystemMetricsMonitor(run.id, tracking_uri=store.uri()), threading.Event()
    first = 1 + max((n for key, n in run.logged.items() if key.startswith(SYSTEM)), default=-1)

    def watch() -> None:
        for step in itertools.count(first):
            monitor.collect_metrics()
            last = ended.wait(FLUSH_S)
            run.log({SYSTEM + key: n for key, n in monitor.aggregate_metrics().items()}, step)
            for each in monitor.monitors:
                each.clear_metrics()
            if last:  # a short run keeps one sample
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
