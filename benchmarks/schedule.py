"""What does the schedule cost: at rest, from a tick to its command, and in recording?

At rest: the memory and processor time of a server beside those of Python with DBOS alone, for half
a minute. Ticks: a job every 10 seconds, whose command writes down when its first line ran.
Recording: a claim at smoke scale, and a command that records nothing, alone, as a job that a server
runs at its time, and as a job that is run now, in turns. All in a database of its own.

    python -m benchmarks.schedule      about 8 minutes on 2 cores
"""

import time

FIRST_LINE = time.time()  # of a command of the benchmark: before anything else is imported

import os  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from datetime import datetime  # noqa: E402
from pathlib import Path  # noqa: E402
from statistics import median  # noqa: E402
from typing import Any  # noqa: E402

REST_S, TICKS_S, EVERY_S, BETWEEN_S, ROUNDS = 30.0, 60.0, 10.0, 15.0, 4
CLAIM = ("pipelines", "run", "small-norm-factorization", "--scale", "smoke", "--force")
SHORT = ("pipelines", "list")
BARE = """
import sys, time
from dbos import DBOS
DBOS(config={"name": "bare", "system_database_url": "sqlite:///" + sys.argv[1]})
DBOS.launch()
time.sleep(1000)
"""


def main() -> None:
    """Measure, print, and record in the tracking store of the project."""
    from benchmarks.recording import temporary_database
    from pipelines.runtime import provenance
    from pipelines.tracking import store, tracked_run

    tags = provenance.tags()
    print(f"{tags['cpu']}, {tags['cores']} cores")
    with temporary_database():
        store.client()  # makes it
        found = at_rest() | latency() | recording("claim", CLAIM) | recording("short", SHORT)
    with tracked_run.tracked("schedule", experiment="benchmarks", kind="benchmark") as run:
        for key, values in found.items():
            run.log({key: median(values)})
            print(f"{key:<28} {median(values):.3g} ({min(values):.3g} to {max(values):.3g})")


@contextmanager
def process(*words: str) -> Iterator[Any]:
    """A process of Python for as long as the block lasts, as psutil has it."""
    import psutil

    from pipelines.runtime.provenance import ROOT

    child = subprocess.Popen([sys.executable, *words], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        yield psutil.Process(child.pid)
    finally:
        child.terminate()
        child.wait()


def at_rest() -> dict[str, list[float]]:
    """Return the memory, in MB, and share of a core, in percent, of a server and of DBOS alone."""
    from pipelines.tracking import store

    other = str(store.home() / "bare.db")
    with (
        process("-m", "pipelines", "schedule", "serve") as server,
        process("-c", BARE, other) as bare,
    ):
        time.sleep(65.0)  # for a minute DBOS looks for new schedules each second
        before = [sum(each.cpu_times()[:2]) for each in (server, bare)]
        time.sleep(REST_S)
        after = [sum(each.cpu_times()[:2]) for each in (server, bare)]
        cpu = [100 * (b - a) / REST_S for a, b in zip(before, after, strict=True)]
        memory = [each.memory_full_info().uss / 1e6 for each in (server, bare)]
    return {
        "rest_mb": [memory[0]],
        "rest_mb_more": [memory[0] - memory[1]],
        "rest_cpu_pct": [cpu[0]],
        "rest_cpu_pct_dbos": [cpu[1]],
    }


@contextmanager
def job_in_schedule(name: str, words: tuple[str, ...], every_s: float) -> Iterator[Any]:
    """Add a job for as long as the block lasts; yield what gives its history."""
    from pipelines.scheduling import engine, schedule, schedule_report
    from pipelines.scheduling.jobs import Job

    cron = f"*/{every_s:.0f} * * * * *"
    with engine.open_client() as client:
        schedule.add(client, Job(name=name, words=words, tz="UTC", cron=cron))
        yield lambda: schedule_report.list_ticks(client, name, 1000)
        schedule.remove(client, name)


def latency() -> dict[str, list[float]]:
    """Return the seconds from a tick to the first line of its command."""
    from pipelines.tracking import store

    lines = store.home() / "first_lines.txt"
    with job_in_schedule("ticks", ("benchmarks.schedule", str(lines)), EVERY_S):  # noqa: SIM117
        with process("-m", "pipelines", "schedule", "serve"):
            time.sleep(TICKS_S)
    ticks = [line.split() for line in lines.read_text().splitlines()]
    late = [float(first) - datetime.fromisoformat(tick[-25:]).timestamp() for first, tick in ticks]
    return {"tick_to_first_line_s": late}


def recording(name: str, words: tuple[str, ...]) -> dict[str, list[float]]:
    """Return the seconds that a command takes alone, and that an attempt with it takes more.

    From its start to its end in the history: what the next tick of the job waits for.
    """
    alone: list[float] = []
    with job_in_schedule(name, words, BETWEEN_S) as history:
        for _ in range(ROUNDS):
            alone.append(timed(*words))
            with process("-m", "pipelines", "schedule", "serve"):
                time.sleep(2 * BETWEEN_S)  # one tick at least, and its end
            timed("pipelines", "schedule", "run-now", name)
        rows = [row for row in history() if row["state"] == "ran"]
    usual = median(alone)
    return {
        f"{name}_alone_s": alone,
        f"{name}_recorded_more_s": [row["wall_s"] - usual for row in rows if not row["by_hand"]],
        f"{name}_by_hand_more_s": [row["wall_s"] - usual for row in rows if row["by_hand"]],
    }


def timed(*words: str) -> float:
    """Seconds of a command of ours."""
    from pipelines.runtime.provenance import ROOT

    start = time.perf_counter()
    run = [sys.executable, "-m", *words]
    subprocess.run(run, cwd=ROOT, check=True, capture_output=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    if len(sys.argv) > 1:
        with Path(sys.argv[1]).open("a") as file:
            file.write(f"{FIRST_LINE} {os.environ['SCHEDULED_TICK']}\n")
    else:
        main()
