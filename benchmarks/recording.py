"""What does writing down a sweep cost, against MLflow's own ways?

A sweep of 10,000 points, 100 settings of 100 steps, with one metric and with five, into a database
of its own that is deleted afterwards. Three ways write its runs in turns, so that a busy machine
slows them alike; what is compared is the cost of a number, for the slow ways write fewer settings:
`client` ten, `log_metric` as many as hold 1,000 numbers. A ratio is the median over rounds.

    python -m benchmarks.recording      about 5 minutes on 2 cores
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median

import numpy as np

from pipelines import bulk, provenance, store, tracking
from pipelines.bulk import Finished

SETTINGS, STEPS, METRICS = 100, 100, (1, 5)
ROUNDS = 5
EXPERIMENT = "recording"


def main() -> None:
    """Measure, print the ratios, and record them in the tracking store of the project."""
    tags = provenance.tags()
    print(f"{tags['cpu']}, {tags['cores']} cores; cost of a number over that of `record`")
    for metrics in METRICS:
        with temporary_database():
            rounds = measure(sweep(metrics))
        params = {"settings": SETTINGS, "steps": STEPS, "metrics": metrics, "rounds": ROUNDS}
        name = f"recording {metrics} metrics"
        with tracking.tracked(
            name, experiment="benchmarks", kind="benchmark", params=params
        ) as run:
            for way in rounds[0]:
                us, ratios = [r[way] for r in rounds], [r[way] / r["record"] for r in rounds]
                run.log({f"{way}_us": median(us), f"{way}_over_record": median(ratios)})
                spread = f"{median(ratios):.0f} ({min(ratios):.0f}-{max(ratios):.0f})"
                print(f"{metrics} x  {way:<10}  {spread:<20} {median(us):>9.1f} us", flush=True)


@contextmanager
def temporary_database() -> Iterator[None]:
    """An empty database in force for as long as the block lasts; the project's stays as it is."""
    before = os.environ.get("MLFLOW_TRACKING_URI")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MLFLOW_TRACKING_URI"] = f"{store.SQLITE}{folder}/mlflow.db"
        try:
            yield
        finally:
            os.environ.pop("MLFLOW_TRACKING_URI")
            os.environ.update({} if before is None else {"MLFLOW_TRACKING_URI": before})


def sweep(metrics: int) -> list[Finished]:
    """The runs of a sweep, with the parameters and tags of a claim's setting."""
    curves = np.random.default_rng(0).standard_normal((SETTINGS, metrics, STEPS))
    now = int(time.time() * 1000)
    return [
        Finished(
            name=f"setting {i}",
            params={"dim": 4, "depth": i, "conditioning": 10.0, "seed": 0},
            tags={"claim": EXPERIMENT, "fingerprint": str(i)},
            steps=range(STEPS),
            curves={f"metric_{m}": values for m, values in enumerate(some)},
            start_ms=now,
            end_ms=now,
        )
        for i, some in enumerate(curves)
    ]


def measure(runs: list[Finished]) -> list[dict[str, float]]:
    """Microseconds a number of every way, one dictionary a round; the first round is a warm-up."""
    thousand = 1_000 // (STEPS * len(runs[0].curves))
    ways = {
        "record": (in_bulk, SETTINGS),
        "client": (by_client, 10),
        "log_metric": (one_by_one, thousand),
    }
    with tracking.tracked("sweep", experiment=EXPERIMENT, kind="sweep") as parent:
        rounds = [
            {way: cost(write, runs[:n], parent.id) for way, (write, n) in ways.items()}
            for _ in range(ROUNDS + 1)
        ]
    return rounds[1:]


def cost(write: Callable[[Sequence[Finished], str], None], runs: list[Finished], to: str) -> float:
    start = time.perf_counter()
    write(runs, to)
    numbers = sum(len(run.steps) * len(run.curves) for run in runs)
    return (time.perf_counter() - start) / numbers * 1e6


def in_bulk(runs: Sequence[Finished], parent_id: str) -> None:
    bulk.record(EXPERIMENT, runs, parent_id)


def by_client(runs: Sequence[Finished], parent_id: str) -> None:
    """The public client, with all numbers of a run in one call, which sends 1,000 a request."""
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


def one_by_one(runs: Sequence[Finished], parent_id: str) -> None:
    """One `mlflow.log_metric` a number."""
    import mlflow

    mlflow.set_tracking_uri(store.uri())
    mlflow.set_experiment(EXPERIMENT)
    for run in runs:
        tags = {**provenance.tags(), **run.tags}
        with mlflow.start_run(run_name=run.name, parent_run_id=parent_id, tags=tags):
            mlflow.log_params(dict(run.params))
            for key, values in run.curves.items():
                for step, value in zip(run.steps, np.asarray(values).tolist(), strict=True):
                    mlflow.log_metric(key, value, step)


if __name__ == "__main__":
    main()
