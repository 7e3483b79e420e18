"""Does a command cost more in a store that holds more, though it asks for as much?

In databases of their own, which are deleted afterwards, of so many finished runs:
claims, and sweeps with 20 settings each, of 20 params and 10 metrics of one step. The commands
start as a person starts them, Python and all, and ask for one claim or two runs; `report` asks for
all claims. The seconds are of the processor; a ratio is to the smallest database, in the same
round. Before, it is said what the client takes to write a setting.

    python -m benchmarks.reading [RUNS ...]      500 2000 8000; about 15 minutes on 2 cores
"""

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

from benchmarks import side_by_side
from pipelines.measurement import claim_catalog
from pipelines.runtime import subcommands
from pipelines.tracking import finished_runs, store, tracked_run

SIZES, CELLS, PARAMS, METRICS, ROUNDS = (500, 2_000, 8_000), 20, 20, 10, 3
MEASURED = "gradient-formula"


def main(sizes: tuple[int, ...]) -> None:
    """Measure, print, and record in the tracking store of the project."""
    side_by_side.print_title(f"Processor seconds of whole commands over {sizes} runs")
    with ExitStack() as databases:
        ways: dict[str, Callable[[], float]] = {}
        written: dict[str, float] = {}
        for size in sizes:
            folder = databases.enter_context(side_by_side.temporary_database())
            began = time.process_time()
            first, second = fill(size)
            written[f"write_run_ms_{size}"] = 1e3 * (time.process_time() - began) / size
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
        f"{name}_over_{sizes[0]}": values / seconds[f"{name.partition('_')[0]}_{sizes[0]}"]
        for name, values in seconds.items()
        if not name.endswith(f"_{sizes[0]}")
    }
    numbers = {**seconds, **ratios, **written}
    side_by_side.report("reading", numbers, cells=CELLS, rounds=ROUNDS)


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
        settings = {"kind": "setting", "claim": name, "code": "another"}
        for i in range(CELLS):
            finished_runs.write(
                f"setting {i}",
                experiment="claims",
                parent=run.id,
                params={f"param_{p}": p * i for p in range(PARAMS)} | {"seed": i},
                tags=settings | {"fingerprint": f"{run.id}-{i}"},
                steps=[0],
                curves={f"metric_{m}": [float(i)] for m in range(METRICS)},
                start_ms=1,
                end_ms=2,
            )
        ids.append(run.id)
    return ids[:2]


def time_command(words: list[str]) -> Callable[[], float]:
    """Return a way to run a command on the present database, which gives its processor seconds."""
    uri = store.uri()

    def run() -> float:
        told = {"MLFLOW_TRACKING_URI": uri}
        child = subcommands.start(("pipelines", *words), told, stdout=subprocess.DEVNULL)
        return side_by_side.wait_for(child)[0]

    return run


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1:])) or SIZES)
