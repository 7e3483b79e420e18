"""Does a command cost more in a store that holds more, though it asks for as much?

In databases of their own, which are deleted afterwards, of 1,000, 4,000 and 16,000 finished runs:
claims with 20 settings each, of 20 params and 10 metrics of one step. The commands start as a
person starts them, Python and all, and ask for one claim or two runs; `report` asks for all claims.
The seconds are of the processor; a ratio is to the smallest database, in the same round.

    python -m benchmarks.reading      about 10 minutes on 2 cores
"""

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from benchmarks import side_by_side
from benchmarks.recording import make_runs
from pipelines.measurement import claim_catalog
from pipelines.tracking import bulk, store, tracked_run

SIZES, CELLS, ROUNDS = (1_000, 4_000, 16_000), 20, 3
MEASURED = "gradient-formula"


def main() -> None:
    """Measure, print, and record in the tracking store of the project."""
    side_by_side.print_title(f"Processor seconds of whole commands over {SIZES} runs")
    with ExitStack() as databases:
        ways: dict[str, Callable[[], float]] = {}
        for size in SIZES:
            folder = databases.enter_context(side_by_side.temporary_database())
            first, second = fill(size)
            for words in (
                ["run", MEASURED, "--scale", "smoke", "--force"],
                ["export", str(folder / "one.zip"), first, "--without-artifacts"],
                ["list"],
                ["compare", first, second],
                ["report", "--out", str(folder / "report")],
            ):
                ways[f"{words[0]}_{size}"] = time_command(words)
        seconds = side_by_side.take_turns(ways, ROUNDS)
    ratios = {
        f"{name}_over_{SIZES[0]}": values / seconds[f"{name.partition('_')[0]}_{SIZES[0]}"]
        for name, values in seconds.items()
        if not name.endswith(f"_{SIZES[0]}")
    }
    side_by_side.report("reading", {**seconds, **ratios}, cells=CELLS, rounds=ROUNDS)


def fill(size: int) -> list[str]:
    """Write that many runs into the present database; return the ids of its claims."""
    names, ids = claim_catalog.names(), list[str]()
    while len(ids) * (CELLS + 1) < size:
        name = names[len(ids) % len(names)]
        tags = {"claim": name, "source": claim_catalog.load(name).source, "seeds": "5"}
        tags |= {"scale": "cpu", "verdict": "inconclusive", "as_stated": "True"}
        tags |= {
            "fingerprint": f"claim {len(ids)}",
            "code": "another",
            "as_printed": "",
            "floor": "",
        }
        with tracked_run.track(name, experiment="claims", kind="claim", tags=tags) as run:
            run.log({"wall_s": 1.0})
        settings = {"kind": "setting", "claim": name, "code": "another", "seeds": "1"}
        cells = [
            replace(
                cell,
                tags=settings | {"fingerprint": f"{run.id}-{i}"},
                steps=[0],
                curves={key: [float(i)] for key in cell.curves},
            )
            for i, cell in enumerate(make_runs(CELLS))
        ]
        bulk.write("claims", cells, run.id)
        ids.append(run.id)
    return ids[:2]


def time_command(words: list[str]) -> Callable[[], float]:
    """Return a way to run a command on the present database, which gives its processor seconds."""
    environment = os.environ | {"MLFLOW_TRACKING_URI": store.uri()}

    def run() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "pipelines", *words]
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return run


if __name__ == "__main__":
    main()
