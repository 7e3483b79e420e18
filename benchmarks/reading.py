"""How long does the scoreboard take over 10,000 runs, and the list of what there is?

Against a floor: the time that bare SQL takes to read the same rows. In a database of its own, which
is deleted afterwards, 10,000 finished runs of claims, each with 20 params and 10 metrics of one
step; the commands start as a person starts them, Python and all.

    python -m benchmarks.reading      about 3 minutes on 2 cores
"""

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from benchmarks import side_by_side
from benchmarks.recording import make_runs
from pipelines.measurement import claim_catalog
from pipelines.tracking.bulk import FinishedRun, write

MANY, BATCH, ROUNDS = 10_000, 500, 3


def main() -> None:
    """Measure, print, and record in the tracking store of the project."""
    side_by_side.print_title(f"Seconds of whole commands over {MANY:,} runs of claims")
    with side_by_side.temporary_database() as folder:
        for start in range(0, MANY, BATCH):
            write("claims", make_claims(start), None)
        ways = {
            "report_s": lambda: time_command("report", "--json", "--out", str(folder)),
            "list_s": lambda: time_command("list"),
            "bare_SQL_s": lambda: read_rows(folder / "mlflow.db"),
        }
        seconds = side_by_side.take_turns(ways, ROUNDS)
    side_by_side.report("reading", seconds, runs=MANY, rounds=ROUNDS)


def make_claims(start: int) -> list[FinishedRun]:
    """Return finished runs of all claims in turn, as a measurement records them."""
    names = claim_catalog.names()
    claims = []
    for i, run in enumerate(make_runs(BATCH), start):
        name = names[i % len(names)]
        tags = {
            "kind": "claim",
            "claim": name,
            "source": claim_catalog.load(name).source,
            "seeds": "5",
            "scale": "cpu",
            "verdict": "inconclusive",
            "fingerprint": str(i),
            "as_stated": "True",
        }
        curves = {key: [i] for key in (*run.curves, "wall_s")}
        claims.append(replace(run, tags=tags, steps=[0], curves=curves))
    return claims


def time_command(*words: str) -> float:
    """Return the seconds of a whole command."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "pipelines", *words]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def read_rows(path: Path) -> float:
    """Return the seconds to read the runs with their tags, params and latest metrics."""
    start = time.perf_counter()
    with closing(sqlite3.connect(path)) as database:
        for table in ("runs", "tags", "params", "latest_metrics"):
            database.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
