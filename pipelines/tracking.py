"""The only door to MLflow: the client, and `tracked`, which makes and settles a run.

Every number goes to a journal (live.py) before it is sent: a process that is killed loses nothing,
and the next command delivers what is missing and settles the run.
"""

import contextlib
import functools
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from pipelines import live, provenance
from pipelines.errors import UserError

BATCH = 1_000  # metrics a request; MLflow's limit
FLUSH_S = 5.0  # the UI lags behind a running run by no more than this
SQLITE = "sqlite:///"


def uri() -> str:
    """MLFLOW_TRACKING_URI, else the project's own database, whatever the current folder."""
    default = f"{SQLITE}{provenance.ROOT / 'mlruns' / 'mlflow.db'}"
    return os.environ.get("MLFLOW_TRACKING_URI") or default


def home() -> Path:
    """The folder of an SQLite database, else mlruns/: journals, locks and artifacts live there."""
    if uri().startswith(SQLITE):
        return Path(uri().removeprefix(SQLITE)).resolve().parent
    return provenance.ROOT / "mlruns"


def client(where: str | None = None) -> Any:
    """The MLflow client of the present store, which is created under a lock where it is new."""
    return _client(where or uri())


@functools.cache
def _client(where: str) -> Any:
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    with live.locked(home() / "live", "database"):
        import mlflow

        _quiet()
        mlflow.set_tracking_uri(where)
        found = mlflow.MlflowClient(tracking_uri=where)
        try:
            found.search_experiments(max_results=1)
        except mlflow.MlflowException as error:
            raise UserError(
                f"The tracking store must be reachable. Received: {where}: "
                f"{str(error).splitlines()[0]}. Check MLFLOW_TRACKING_URI."
            ) from error
    return found


def _quiet() -> None:
    """MLflow tells of its migrations and monitors at level INFO; a newcomer need not read them."""
    import logging

    logging.getLogger("mlflow").setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)


@functools.cache
def _experiment(where: str, name: str) -> str:
    """The id of the experiment of that name, created when it is not there."""
    import mlflow

    found = client(where).get_experiment_by_name(name)
    if found is None:
        artifacts = (home() / "artifacts").as_uri() if where.startswith(SQLITE) else None
        with contextlib.suppress(mlflow.MlflowException):  # another process was faster
            client(where).create_experiment(name, artifact_location=artifacts)
        found = client(where).get_experiment_by_name(name)
    return str(found.experiment_id)


@dataclass
class Run:
    """A run that is being written; `tracked` makes one."""

    id: str
    name: str
    experiment: str
    journal: live.Journal
    pending: list[live.Number] = field(default_factory=list)
    flushed: float = field(default_factory=time.monotonic)

    def log(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Write down numbers of one step: in the journal at once, in MLflow within seconds."""
        now = int(time.time() * 1000)
        numbers = [(key, float(value), step, now) for key, value in metrics.items()]
        self.journal.write(numbers)
        self.pending += numbers
        if len(self.pending) >= BATCH or time.monotonic() - self.flushed > FLUSH_S:
            self.flush()

    def flush(self) -> None:
        """Send what is pending; what a store refuses now is tried again later."""
        import mlflow

        self.flushed = time.monotonic()
        with contextlib.suppress(mlflow.MlflowException):
            while self.pending:
                _send(client(), self.id, self.pending[:BATCH])
                del self.pending[:BATCH]

    def tag(self, key: str, value: str) -> None:
        client().set_tag(self.id, key, value)

    def text(self, text: str, path: str) -> None:
        client().log_text(self.id, text, path)

    def dataset(self, name: str, digest: str, examples: int) -> None:
        """Name the data this run trains on, for the data set column of the UI."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        source = json.dumps({"tensorflow_datasets": name})
        profile = json.dumps({"train_examples": examples})
        entity = Dataset(name, digest, "tensorflow_datasets", source, profile=profile)
        context = [InputTag("mlflow.data.context", "training")]
        client().log_inputs(self.id, [DatasetInput(entity, context)])

    def model(self, model: Any) -> None:
        """Store a Keras model that `mlflow.pyfunc.load_model(f"runs:/{id}/model")` reads back."""
        import mlflow.keras
        from mlflow.models import ModelSignature
        from mlflow.types import Schema, TensorSpec

        def schema(shape: tuple[int | None, ...]) -> Schema:
            return Schema([TensorSpec(np.dtype("float32"), (-1, *shape[1:]))])

        pins = [f"{name}=={metadata.version(name)}" for name in ("keras", "tensorflow", "mlflow")]
        with mlflow.start_run(run_id=self.id):  # its own FINISHED is overwritten when we settle
            mlflow.keras.log_model(
                model,
                name="model",
                signature=ModelSignature(schema(model.input_shape), schema(model.output_shape)),
                pip_requirements=pins,
            )

    def figure(self, figure: Any, path: str) -> None:
        client().log_figure(self.id, figure, path, save_kwargs={"dpi": 120})


def _send(to: Any, run_id: str, numbers: list[live.Number]) -> None:
    from mlflow.entities import Metric

    to.log_batch(run_id, metrics=[Metric(k, v, when, step) for k, v, step, when in numbers])


@contextmanager
def tracked(
    name: str,
    *,
    experiment: str,
    kind: str,
    params: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
    parent: Run | None = None,
    resume: str | None = None,
) -> Iterator[Run]:
    """A run in MLflow for as long as the block lasts, with provenance, and settled at its end.

    `kind` is claim, trial, seed, setting, study or training; `resume` continues a run by its id.
    Ends FINISHED; KILLED after Ctrl-C or a termination signal; FAILED, with the traceback as an
    artifact, after any other exception, which goes on to the caller.
    """
    where = uri()
    links = {"mlflow.parentRunId": parent.id} if parent else {}
    run_id = resume or _create(where, name, experiment, {**links, "kind": kind, **(tags or {})})
    run = Run(run_id, name, experiment, live.Journal(home() / "live", run_id, where))
    if resume:
        client().update_run(run_id, status="RUNNING")
    status = "FAILED"
    try:
        if not resume:
            _params(run, params or {})
            if parent is None:  # children share their parent's process, packages and patch
                _provenance(run)
        yield run
        status = "FINISHED"
    except (KeyboardInterrupt, SystemExit):
        status = "KILLED"
        raise
    except Exception as error:
        run.text(traceback.format_exc(), "traceback.txt")
        run.tag("failure", f"{type(error).__name__}: {error}"[:1000])
        raise
    finally:
        _settle(run, status)


def _create(where: str, name: str, experiment: str, tags: Mapping[str, str]) -> str:
    created = client(where).create_run(
        _experiment(where, experiment), run_name=name, tags={**provenance.tags(), **tags}
    )
    return str(created.info.run_id)


def _params(run: Run, params: Mapping[str, Any]) -> None:
    from mlflow.entities import Param

    rows = [Param(key, str(value)) for key, value in params.items()]
    for start in range(0, len(rows), 100):
        client().log_batch(run.id, params=rows[start : start + 100])


def _provenance(run: Run) -> None:
    run.text(provenance.packages(), "provenance/packages.txt")
    if provenance.diff():
        run.text(provenance.diff(), "provenance/uncommitted.patch")


def copy_artifact(run_id: str, path: str, target: Path) -> None:
    """Copy one artifact of a run to the file `target`."""
    from mlflow.artifacts import download_artifacts

    with tempfile.TemporaryDirectory() as folder:
        found = download_artifacts(
            run_id=run_id, artifact_path=path, dst_path=folder, tracking_uri=uri()
        )
        shutil.copyfile(found, target)


@contextmanager
def system_metrics(run: Run) -> Iterator[None]:
    """Processor, memory, disk and network use under system/ for as long as the block lasts."""
    client()
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

    monitor = SystemMetricsMonitor(run.id, sampling_interval=FLUSH_S, tracking_uri=uri())
    monitor.start()
    try:
        yield
    finally:
        if any(m.metrics for m in monitor.monitors):
            monitor.publish_metrics(monitor.aggregate_metrics())  # a short run keeps one sample
        monitor.finish()


def _settle(run: Run, status: str) -> None:
    """Deliver the rest and close the run; if the store is away, the next command will."""
    import mlflow

    run.journal.end(status)
    run.flush()
    try:
        if run.pending:
            raise mlflow.MlflowException(f"{len(run.pending)} numbers were not accepted")
        client().set_terminated(run.id, status)
    except mlflow.MlflowException as error:
        run.journal.close(delivered=False)
        message = f"run {run.name} is kept in {run.journal.path} until the next command: {error}"
        print(message, file=sys.stderr)
    else:
        run.journal.close(delivered=True)


def settle_dead() -> list[str]:
    """Deliver and close the runs of processes that were killed; returns the run ids."""
    folder = home() / "live"
    if not live.leftovers(folder):
        return []
    import mlflow

    settled = []
    with live.locked(folder, "settle"):
        for left in live.leftovers(folder):
            with contextlib.suppress(mlflow.MlflowException):
                _deliver(left)
                settled.append(left.run_id)
    return settled


def _deliver(left: live.Leftover) -> None:
    """Send the numbers of a journal that MLflow lacks, then close its run."""
    to = client(left.uri)
    there = {
        (key, point.value, point.step, point.timestamp)
        for key in {number[0] for number in left.numbers}
        for point in to.get_metric_history(left.run_id, key)
    }
    missing = [number for number in left.numbers if tuple(number) not in there]
    for start in range(0, len(missing), BATCH):
        _send(to, left.run_id, missing[start : start + BATCH])
    to.set_terminated(left.run_id, left.status)
    left.path.unlink()


def links(server: str) -> dict[str, str]:
    """Addresses in the UI of every experiment's runs, newest first, past its opening page."""
    query = "?workflowType=machine_learning&orderByKey=attributes.start_time&orderByAsc=false"
    return {
        e.name: f"{server}/#/experiments/{e.experiment_id}/runs{query}"
        for e in client().search_experiments()
        if e.name != "Default"
    }


def serve(host: str, port: int) -> None:
    """Become the MLflow server of the present store; does not return."""
    os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"
    arguments = ["server", "--backend-store-uri", uri(), "--host", host, "--port", str(port)]
    if uri().startswith(SQLITE):
        arguments += ["--default-artifact-root", (home() / "artifacts").as_uri()]
    os.execv(sys.executable, [sys.executable, "-m", "mlflow", *arguments, "--workers", "1"])
