"""What does writing down finished runs cost, against MLflow's own ways and against bare inserts?

Runs of 20 params and 10 metrics with curves of 100 steps, into a database of its own that is
deleted afterwards. Four ways take turns, so that a busy machine slows them alike; what is compared
is the cost of a run, for the slow ways write fewer: `client` four, with one `log_batch` a run,
`fluent` one, with one call a param and a number. `raw` puts the rows that `record` wrote, ready as
tuples, into a second database with the same tables and indices by bare `executemany`. A ratio is
the median over rounds. Last, 10,000 runs are written through `record`.

    python -m benchmarks.recording      about 5 minutes on 2 cores
"""

import contextlib
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np

from pipelines.runtime import provenance
from pipelines.tracking import bulk, store, tracked_run
from pipelines.tracking.bulk import Finished

RUNS, PARAMS, METRICS, STEPS = 100, 20, 10, 100
MANY = 10_000
ROUNDS = 5
EXPERIMENT = "recording"
TABLES = ("runs", "tags", "params", "metrics", "latest_metrics")
Rows = dict[str, list[tuple[object, ...]]]  # by table


def main() -> None:
    """Measure, print the ratios, and record them in the tracking store of the project."""
    tags = provenance.tags()
    print(f"{tags['cpu']}, {tags['cores']} cores; cost of a run over that of `record`")
    with temporary_database() as folder:
        rounds = measure(folder)
        took = [cost(in_bulk, runs(RUNS), "") for _ in range(MANY // RUNS)]
    params = {"runs": RUNS, "params": PARAMS, "metrics": METRICS, "steps": STEPS, "rounds": ROUNDS}
    with tracked_run.tracked(
        "recording", experiment="benchmarks", kind="benchmark", params=params
    ) as run:
        for way in rounds[0]:
            ms, ratios = [r[way] for r in rounds], [r[way] / r["record"] for r in rounds]
            run.log({f"{way}_ms": median(ms), f"{way}_over_record": median(ratios)})
            spread = f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
            print(f"{way:<8}  {spread:<24} {median(ms):>9.1f} ms a run", flush=True)
        slowing = sum(took[-10:]) / sum(took[:10])
        run.log({"many_runs": MANY, "many_s": sum(took) * RUNS / 1e3, "many_slowing": slowing})
    print(f"{MANY:,} runs: {sum(took) * RUNS / 1e3:.0f} s; the last over the first {slowing:.2f}")


@contextmanager
def temporary_database() -> Iterator[Path]:
    """An empty database in force for as long as the block lasts; the project's stays as it is."""
    before = os.environ.get("MLFLOW_TRACKING_URI")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MLFLOW_TRACKING_URI"] = f"{store.SQLITE}{folder}/mlflow.db"
        try:
            yield Path(folder)
        finally:
            os.environ.pop("MLFLOW_TRACKING_URI")
            os.environ.update({} if before is None else {"MLFLOW_TRACKING_URI": before})


def runs(count: int, **tags: str) -> list[Finished]:
    """Finished runs with params, curves, and the tags of a claim's setting or those given."""
    curves = np.random.default_rng(0).standard_normal((count, METRICS, STEPS))
    now = int(time.time() * 1000)
    return [
        Finished(
            name=f"setting {i}",
            params={f"param_{p}": p * i for p in range(PARAMS)},
            tags=tags or {"claim": EXPERIMENT, "fingerprint": str(i)},
            steps=range(STEPS),
            curves={f"metric_{m}": values for m, values in enumerate(some)},
            start_ms=now,
            end_ms=now,
        )
        for i, some in enumerate(curves)
    ]


def measure(folder: Path) -> list[dict[str, float]]:
    """Milliseconds a run of every way, one dictionary a round; the first round is a warm-up."""
    with tracked_run.tracked("sweep", experiment=EXPERIMENT, kind="sweep") as parent:
        copy(folder / "mlflow.db", folder / "raw.db")
        rounds = []
        for _ in range(ROUNDS + 1):
            found = {"record": cost(in_bulk, runs(RUNS), parent.id)}
            rows = newest(folder / "mlflow.db")
            start = time.perf_counter()
            bare_inserts(folder / "raw.db", rows)
            found["raw"] = (time.perf_counter() - start) / RUNS * 1e3
            found["client"] = cost(by_client, runs(4), parent.id)
            found["fluent"] = cost(one_by_one, runs(1), parent.id)
            rounds.append(found)
    return rounds[1:]


def cost(write: Callable[[Sequence[Finished], str], None], some: list[Finished], to: str) -> float:
    """Milliseconds a run."""
    start = time.perf_counter()
    write(some, to)
    return (time.perf_counter() - start) / len(some) * 1e3


def in_bulk(some: Sequence[Finished], parent_id: str) -> None:
    bulk.record(EXPERIMENT, some, parent_id or None)


def copy(source: Path, target: Path) -> None:
    """Copy a database that is in use."""
    with (
        contextlib.closing(sqlite3.connect(source)) as a,
        contextlib.closing(sqlite3.connect(target)) as b,
    ):
        a.backup(b)
        b.execute("PRAGMA journal_mode = WAL")


def newest(path: Path) -> Rows:
    """The rows of the RUNS runs that were written last."""
    ids = f"SELECT run_uuid FROM runs ORDER BY rowid DESC LIMIT {RUNS}"  # noqa: S608
    with contextlib.closing(sqlite3.connect(path)) as database:
        return {
            table: database.execute(
                f"SELECT * FROM {table} WHERE run_uuid IN ({ids})"  # noqa: S608
            ).fetchall()
            for table in TABLES
        }


def bare_inserts(path: Path, rows: Rows) -> None:
    """What no writer can go below: the same rows, ready, in one transaction."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA synchronous = NORMAL")
        for table, some in rows.items():
            places = ", ".join("?" * len(some[0]))
            database.executemany(f"INSERT INTO {table} VALUES ({places})", some)  # noqa: S608
        database.commit()


def by_client(some: Sequence[Finished], parent_id: str) -> None:
    """The public client, with all numbers of a run in one call, which sends 1,000 a request."""
    from mlflow.entities import Metric, Param

    client = store.client()
    for run in some:
        tags = {**provenance.tags(), **run.tags, "mlflow.parentRunId": parent_id}
        where = store.experiment(store.uri(), EXPERIMENT)
        run_id = client.create_run(where, run.start_ms, tags, run.name).info.run_id
        numbers = [
            Metric(key, value, run.end_ms, step)
            for key, values in run.curves.items()
            for step, value in zip(run.steps, np.asarray(values).tolist(), strict=True)
        ]
        params = [Param(key, str(value)) for key, value in run.params.items()]
        client.log_batch(run_id, metrics=numbers, params=params)
        client.set_terminated(run_id, "FINISHED", run.end_ms)


def one_by_one(some: Sequence[Finished], parent_id: str) -> None:
    """One `mlflow.log_param` a param, one `mlflow.log_metric` a number."""
    import mlflow

    mlflow.set_tracking_uri(store.uri())
    mlflow.set_experiment(EXPERIMENT)
    for run in some:
        tags = {**provenance.tags(), **run.tags}
        with mlflow.start_run(run_name=run.name, parent_run_id=parent_id, tags=tags):
            for param, value in run.params.items():
                mlflow.log_param(param, value)
            for key, values in run.curves.items():
                for step, value in zip(run.steps, np.asarray(values).tolist(), strict=True):
                    mlflow.log_metric(key, value, step)


if __name__ == "__main__":
    main()
