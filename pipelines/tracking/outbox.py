"""Write into a run: numbers, tags, params, a data set, files and a model, in its journal first.

The functions send to MLflow at once; an `Outbox` has a thread that sends what waits every few
seconds, so that a training never waits for the store, and that gives the run's heartbeat. A
store that is locked, full or away loses nothing: numbers, tags, params and files wait, on disk, for
it or for the next command (recovery.py). A disk that is full ends the run: its command, repeated,
goes on from the last checkpoint.
"""

import contextlib
import functools
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.errors import Unavailable, UserError, short
from pipelines.runtime import heartbeat, signals
from pipelines.runtime.files import HALF, remove, replace_whole
from pipelines.tracking import journals, store

MAX_METRICS, MAX_TEXTS = 800, 100  # numbers, params and tags a request: MLflow takes 1,000 in all
FINAL = ("train_", "val_", "test_")  # begin the numbers of the weights that are stored
MODEL_NAME = "model"  # the name of a run's logged model
MODEL_FOLDER = "logged-model"  # its folder among the files that wait; no artifact has that name
SENT_MODEL = f"{HALF}sent"  # the folder of a model that has been sent, and is to be deleted
PERMANENT_ERRORS = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")  # no retry helps
FLUSH_S = 5.0  # the UI lags behind a running run by no more than this
RETRY_AFTER_S = 30.0  # before a store is asked again that did not take the end of a run


@functools.cache
def check_name(metric: str) -> None:
    """Raise MLflow's error for a name that it refuses."""
    store.client()
    from mlflow.utils.validation import _validate_metric_name

    _validate_metric_name(metric)


def send_batch(
    run_id: str,
    numbers: Sequence[journals.Number] = (),
    *,
    params: Mapping[str, str] = {},
    tags: Mapping[str, str] = {},
) -> None:
    """Write any count of numbers, params and tags into a run, in as few requests as possible."""
    from mlflow.entities import Metric, Param, RunTag

    parts = {
        "metrics": ([Metric(key, n, when, step) for key, n, step, when in numbers], MAX_METRICS),
        "params": ([Param(*each) for each in params.items()], MAX_TEXTS),
        "tags": ([RunTag(*each) for each in tags.items()], MAX_TEXTS),
    }
    for i in range(max(math.ceil(len(rows) / most) for rows, most in parts.values())):
        some = {key: rows[i * most : (i + 1) * most] for key, (rows, most) in parts.items()}
        store.client().log_batch(run_id, **some)


def send_dataset(run_id: str, about: Mapping[str, Any]) -> None:
    """Write into a run what it trains on, for the data set column of the UI."""
    from mlflow.entities import Dataset, DatasetInput, InputTag
    from mlflow.types import Schema, TensorSpec

    older = {"source_type": "code", "schema": {}, "profile": {}}  # of a journal left before 0.3
    about = {**older, **about}
    schema = {
        key: Schema([TensorSpec(np.dtype(kind), tuple(shape))]).to_json()
        for key, (kind, shape) in about["schema"].items()
    }
    entity = Dataset(
        about["name"],
        about["digest"],
        about["source_type"],
        json.dumps(about["source"]),
        json.dumps({"mlflow_tensorspec": schema}),
        json.dumps(about["profile"]),
    )
    context = [InputTag("mlflow.data.context", "training")]
    store.client().log_inputs(run_id, [DatasetInput(entity, context)])


def send_files(run_id: str, spool: Path) -> None:
    """Move the files of a folder, by their paths in it, to the artifacts of a run.

    Its subfolder MODEL_FOLDER becomes a logged model. What is still being written is left there,
    as is a model that has come just now.
    """
    if (spool / MODEL_FOLDER).is_dir():
        _send_model(run_id, spool / MODEL_FOLDER)
    for path in sorted(spool.rglob("*")):
        artifact = path.relative_to(spool)
        unfinished = any(part.startswith(HALF) for part in artifact.parts)
        if path.is_file() and not unfinished and artifact.parts[0] != MODEL_FOLDER:
            folder = artifact.parent.as_posix()
            store.client().log_artifact(run_id, str(path), None if folder == "." else folder)
            path.unlink()


def _send_model(run_id: str, folder: Path) -> None:
    """Make a folder of MLflow's form the logged model of a run, of which it has one.

    MLflow links it to the run last, so that a run has no model that is not whole. What a kill
    interrupts is done again, into the same logged model.
    """
    from mlflow.entities import LoggedModelOutput
    from mlflow.models import Model

    to = store.client()
    run = to.get_run(run_id)
    models = to.search_logged_models([run.info.experiment_id], f"source_run_id = '{run_id}'")
    model = models[0] if models else _create_model(run)
    about = Model.load(str(folder))
    about.model_id, about.artifact_path = model.model_id, model.artifact_location
    sent = folder.with_name(SENT_MODEL)
    remove(sent)
    about.save(str(sent))
    sent.replace(folder / "MLmodel")
    to.log_model_artifacts(model.model_id, str(folder))
    if not model.metrics:
        to.log_batch(run_id, _model_metrics(run, model.model_id))
    to.finalize_logged_model(model.model_id, "READY")
    if model.model_id not in {output.model_id for output in run.outputs.model_outputs}:
        to.log_outputs(run_id, [LoggedModelOutput(model.model_id, 0)])
    folder.replace(sent)  # whole or gone, for whoever goes on
    remove(sent)


def _create_model(run: Any) -> Any:
    """Begin a logged model with the params and the origin of its run."""
    origin = ("mlflow.source", "mlflow.user")
    return store.client().create_logged_model(
        run.info.experiment_id,
        name=MODEL_NAME,
        source_run_id=run.info.run_id,
        tags={key: text for key, text in run.data.tags.items() if key.startswith(origin)},
        params=run.data.params,
    )


def _model_metrics(run: Any, model_id: str) -> list[Any]:
    """Return a run's last numbers of training, validation and test, as those of its model.

    MLflow finds a model by any of its values, so that each has one, and none that is not finite.
    """
    from mlflow.entities import Metric

    data = [each.dataset for each in run.inputs.dataset_inputs][:1]
    about = {"dataset_name": data[0].name, "dataset_digest": data[0].digest} if data else {}
    points = []
    for key, value in run.data.metrics.items():
        if key.startswith(FINAL) and abs(value) < sys.float_info.max:
            history = store.client().get_metric_history(run.info.run_id, key)
            last = max(history, key=lambda point: (point.step, point.timestamp))
            points.append(Metric(key, value, last.timestamp, last.step, model_id, **about))
    return points


class Waiting:
    """Numbers, facts and files of a run that MLflow has yet to take."""

    def __init__(self, content: journals.Content, spool: Path) -> None:
        self.numbers, self.facts, self.spool = [*content.numbers], [*content.facts], spool
        self.lock = threading.Lock()  # guards what waits; never held while the store is asked

    def deliver(self, run_id: str) -> None:
        """Send the oldest first, and what is added meanwhile.

        MLflow keeps equal points once: what was sent before a kill does no harm.
        """
        while batch := self.numbers[:MAX_METRICS]:
            send_batch(run_id, batch)
            with self.lock:
                del self.numbers[: len(batch)]
        while self.facts:
            kind, value = self.facts[0]
            if kind == "dataset":
                send_dataset(run_id, value)
            else:
                send_batch(run_id, **{kind: value})
            with self.lock:
                del self.facts[0]
        send_files(run_id, self.spool)


class Outbox:
    """The numbers, tags and files that a run sends to MLflow; `close` ends it."""

    failed_at = -RETRY_AFTER_S  # when a run of this process last ended without its store

    def __init__(self, run_id: str, name: str, journal: journals.Journal) -> None:
        self.run_id, self.name, self.journal = run_id, name, journal
        self._waiting = Waiting(journal.undelivered, journal.spool)
        self._refused: Exception | None = None
        self._last_heartbeat = time.time()
        self._sending = threading.Lock()
        self._closing, self._wake = False, threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name=f"outbox {run_id}")
        self._thread.start()

    def add_numbers(self, numbers: Sequence[journals.Number]) -> None:
        """Send numbers within seconds; raise for a name MLflow refuses, and for a full disk."""
        for number in numbers:
            check_name(number[0])
        with self._waiting.lock:
            self._waiting.numbers += numbers
            self.journal.write(numbers=numbers)
        self._raise_refused()

    def add_fact(self, kind: str, value: Any) -> None:
        """Send a fact at once: its kind is one of journals.FACTS, its value is what JSON can be."""
        with self._waiting.lock:
            self._waiting.facts.append((kind, value))
            self.journal.write(**{kind: value})
        self._wake.set()
        self._raise_refused()

    def add_file(self, path: str, write: Callable[[Path], Any]) -> None:
        """Call `write` with a place for a file or a folder, the run's artifact of that path."""
        target = self.journal.spool / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with replace_whole(target) as half:
            write(half)
        self._wake.set()

    def flush(self) -> None:
        """Send what waits, now; what the store cannot take waits on. Raise what it refuses.

        A signal waits for it: a session of MLflow that is cut off keeps the database locked.
        """
        with signals.defer():
            self._deliver()
        self._raise_refused()

    def close(self, status: str) -> None:
        """Send the rest and end the run; what the store does not take, the next command delivers.

        Raise what MLflow refused, which makes the run FAILED, and Unavailable where a run that has
        FINISHED is not all in the store: what reads it there would read half of it.
        """
        delivered = False
        try:
            self._closing = True
            self._end(status)
            self._wake.set()
            self._thread.join()
            if time.monotonic() - Outbox.failed_at > RETRY_AFTER_S:
                if delivered := self._deliver():
                    try:
                        ended = "FAILED" if self._refused else status
                        store.client().set_terminated(self.run_id, ended)
                    except store.unavailable() as error:
                        delivered = False
                        if getattr(error, "error_code", "") in PERMANENT_ERRORS:
                            self._refused = error  # a deleted run
                if not delivered and not self._refused:
                    Outbox.failed_at = time.monotonic()
        finally:
            if not delivered:
                self._end(status)
            self.journal.close(delivered)
        self._raise_refused()
        if not delivered:
            notice = f"{self.name} is kept in {self.journal.path}: the next command delivers it."
            if status == "FINISHED":
                raise Unavailable(f"The tracking store does not take what has ended. {notice}")
            print(notice, file=sys.stderr)

    def _end(self, status: str) -> None:
        with contextlib.suppress(OSError):
            self.journal.write(end="FAILED" if self._refused else status)

    def _raise_refused(self) -> None:
        refused, self._refused = self._refused, None
        if refused:
            raise UserError(
                f"MLflow must take what a run logs. Received: {self.name} ({self.run_id}): "
                f"{short(refused)} If the run was deleted, repeat its command."
            ) from refused

    def _work(self) -> None:
        while not self._closing:
            self._wake.wait(FLUSH_S)
            self._wake.clear()
            if self._closing:
                return
            if time.time() - self._last_heartbeat > heartbeat.BEAT_S:
                with contextlib.suppress(OSError, store.unavailable()):
                    os.utime(self.journal.path)  # a sign of life for hosts that do not see its lock
                    store.client().set_tag(self.run_id, heartbeat.HEARTBEAT, heartbeat.timestamp())
                    if time.time() - self._last_heartbeat > heartbeat.LOST_S:  # closed as dead
                        store.client().update_run(self.run_id, status="RUNNING")
                        with contextlib.suppress(store.unavailable()):  # nobody has closed it
                            store.client().delete_tag(self.run_id, heartbeat.SETTLED)
                    self._last_heartbeat = time.time()
            self._deliver()

    def _deliver(self) -> bool:
        """Send all that waits; return False where something must wait on."""
        with self._sending:
            try:
                self._waiting.deliver(self.run_id)
            except (OSError, store.unavailable()) as error:
                if getattr(error, "error_code", "") not in PERMANENT_ERRORS:
                    return False
                self._refused = error  # a deleted run
                with self._waiting.lock:
                    self._waiting.numbers.clear()
                    self._waiting.facts.clear()
        return True
