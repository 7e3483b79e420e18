"""What does writing down finished runs cost, against MLflow's client and against bare inserts?

Runs of 20 params and 10 metrics with curves of 100 steps, into a database of its own that is
deleted afterwards. What is compared is the cost of a run: `client`, with one `log_batch` a run,
writes fewer. `raw` puts the rows that `record` wrote, ready as tuples, into a second database with
the same tables and indices by bare `executemany`. Last, 10,000 runs are written through `record`.

    python -m benchmarks.recording      about 5 minutes on 2 cores
"""

import contextlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import side_by_side
from pipelines.runtime import provenance
from pipelines.tracking import bulk, store, tracked_run
from pipelines.tracking.bulk import FinishedRun

RUNS, PARAMS, METRICS, STEPS = 100, 20, 10, 100
MANY, ROUNDS = 10_000, 5
EXPERIMENT = "recording"
TABLES = ("runs", "tags", "params", "metrics", "latest_metrics")


def main() -> None:
    """Measure, print the ratios, and record them in the tracking store of the project."""
    side_by_side.print_title("Milliseconds a run, and over those of `record`")
    with side_by_side.temporary_database() as folder:
        ms = measure(folder)
        took = [cost(in_bulk, make_runs(RUNS), "") for _ in range(MANY // RUNS)]
    numbers: dict[str, Any] = {f"{way}_ms": ms[way] for way in ms}
    numbers |= {f"{way}_over_record": ms[way] / ms["record"] for way in ms}
    numbers |= {
        "many_runs": MANY,
        "many_s": sum(took) * RUNS / 1e3,
        "many_slowing": sum(took[-10:]) / sum(took[:10]),  # the last over the first
    }
    params = {"runs": RUNS, "params": PARAMS, "metrics": METRICS, "steps": STEPS, "rounds": ROUNDS}
    side_by_side.report("recording", numbers, **params)


def make_runs(count: int) -> list[FinishedRun]:
    """Return finished runs with params, curves, and the tags of a claim's setting."""
    curves = np.random.default_rng(0).standard_normal((count, METRICS, STEPS))
    now = int(time.time() * 1000)
    return [
        FinishedRun(
            name=f"setting {i}",
            params={f"param_{p}": p * i for p in range(PARAMS)},
            tags={"claim": EXPERIMENT, "fingerprint": str(i)},
            steps=range(STEPS),
            curves={f"metric_{m}": values for m, values in enumerate(of_run)},
            start_ms=now + i,
            end_ms=now + i,
        )
        for i, of_run in enumerate(curves)
    ]


def measure(folder: Path) -> side_by_side.Rounds:
    """Return the milliseconds a run of every way."""
    with tracked_run.track("sweep", experiment=EXPERIMENT, kind="sweep") as parent:
        copy(folder / "mlflow.db", folder / "raw.db")
        ways = {
            "record": lambda: cost(in_bulk, make_runs(RUNS), parent.id),
            "raw": lambda: bare_inserts(folder),
            "client": lambda: cost(by_client, make_runs(4), parent.id),
        }
        return side_by_side.take_turns(ways, ROUNDS, warm_up=1)


def cost(
    write: Callable[[Sequence[FinishedRun], str], None], runs: list[FinishedRun], to: str
) -> float:
    """Return the milliseconds that a way to write takes a run."""
    start = time.perf_counter()
    write(runs, to)
    return (time.perf_counter() - start) / len(runs) * 1e3


def in_bulk(runs: Sequence[FinishedRun], parent_id: str) -> None:
    """Write the runs as a sweep does."""
    bulk.write(EXPERIMENT, runs, parent_id or None)


def copy(source: Path, target: Path) -> None:
    """Copy a database that is in use."""
    with (
        contextlib.closing(sqlite3.connect(source)) as a,
        contextlib.closing(sqlite3.connect(target)) as b,
    ):
        a.backup(b)
        b.execute("PRAGMA journal_mode = WAL")


def bare_inserts(folder: Path) -> float:
    """Return the milliseconds a run of what no writer can go below.

    The rows of the runs that were written last, ready, go into raw.db in one transaction.
    """
    ids = f"SELECT run_uuid FROM runs ORDER BY rowid DESC LIMIT {RUNS}"  # noqa: S608
    with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as database:
        query = f"SELECT * FROM {{}} WHERE run_uuid IN ({ids})"  # noqa: S608
        rows = {table: database.execute(query.format(table)).fetchall() for table in TABLES}
    start = time.perf_counter()
    with contextlib.closing(sqlite3.connect(folder / "raw.db")) as database:
        database.execute("PRAGMA synchronous = NORMAL")
        for table, of_table in rows.items():
            places = ", ".join("?" * len(of_table[0]))
            database.executemany(f"INSERT INTO {table} VALUES ({places})", of_table)  # noqa: S608
        database.commit()
    return (time.perf_counter() - start) / RUNS * 1e3


def by_client(runs: Sequence[FinishedRun], parent_id: str) -> None:
    """Write them by the public client, all numbers of a run in one call, 1,000 a request."""
    from mlflow.entities import Metric, Param

    client = store.client()
    for run in runs:
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


if __name__ == "__main__":
    main()
