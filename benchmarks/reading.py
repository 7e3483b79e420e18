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
from pathlib import Path
from statistics import median

from numpy.typing import ArrayLike

from benchmarks import recording
from pipelines.measurement import claim_catalog
from pipelines.runtime import provenance
from pipelines.tracking import tracked_run
from pipelines.tracking.bulk import Finished, record

MANY, BATCH, ROUNDS = 10_000, 500, 3
COMMANDS = {"report": ("report", "--json"), "list": ("list",)}


def main() -> None:
    """Measure, print, and record in the tracking store of the project."""
    tags = provenance.tags()
    print(f"{tags['cpu']}, {tags['cores']} cores; {MANY:,} runs of claims")
    with recording.temporary_database() as folder:
        for start in range(0, MANY, BATCH):
            record("claims", claims(start), None)
        took = {
            way: [seconds(folder, *words) for _ in range(ROUNDS)] for way, words in COMMANDS.items()
        }
        took["bare SQL"] = [bare(folder / "mlflow.db") for _ in range(ROUNDS)]
    params = {"runs": MANY, "rounds": ROUNDS}
    with tracked_run.tracked(
        "reading", experiment="benchmarks", kind="benchmark", params=params
    ) as run:
        for way, some in took.items():
            run.log({f"{way.replace(' ', '_')}_s": median(some)})
            print(f"{way:<10} {median(some):.2f} s ({min(some):.2f}-{max(some):.2f})")


def claims(start: int) -> list[Finished]:
    """Finished runs of all claims in turn, as `sweep.py` records them."""
    names = claim_catalog.names()
    found = []
    for i, run in enumerate(recording.runs(BATCH), start):
        own = claim_catalog.load(names[i % len(names)])
        tags = {
            "kind": "claim",
            "claim": names[i % len(names)],
            "source": own.source,
            "seeds": "5",
            "scale": "cpu",
            "verdict": "inconclusive",
            "as_stated": "True",
        }
        curves: dict[str, ArrayLike] = {key: [i] for key in (*run.curves, "wall_s")}
        found.append(
            Finished(run.name, run.params, tags, [0], curves, run.start_ms + i, run.end_ms + i)
        )
    return found


def seconds(folder: Path, *words: str) -> float:
    """Of a whole command."""
    out = ["--out", str(folder)] if words[0] == "report" else []
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "pipelines", *words, *out], stdout=subprocess.DEVNULL, check=True
    )
    return time.perf_counter() - start


def bare(path: Path) -> float:
    """Seconds to read the runs with their tags, params and latest metrics, and no more."""
    start = time.perf_counter()
    with closing(sqlite3.connect(path)) as database:
        for table in ("runs", "tags", "params", "latest_metrics"):
            database.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
