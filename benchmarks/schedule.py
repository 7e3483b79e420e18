"""What does the schedule cost: at rest, from a tick to its command, and in recording?

At rest: the memory and processor time of a server beside those of Python with APScheduler alone,
for half a minute. Ticks: a job every 10 seconds, whose command writes down when its first line ran.
Recording: a claim at smoke scale, and a command that records nothing, alone and as a job that a
server runs at its time, in turns; and as a job that is run now, whose supervisor was not started
before. All in a database of its own.

    python -m benchmarks.schedule      about 8 minutes on 2 cores
"""

import time

FIRST_LINE = time.time()  # of a command of the benchmark: before anything else is imported

import os  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from pathlib import Path  # noqa: E402
from statistics import median  # noqa: E402
from typing import Any  # noqa: E402

REST_S, TICKS_S, EVERY_S, BETWEEN_S, ROUNDS = 30.0, 60.0, 10.0, 15.0, 4
CLAIM = ("pipelines", "run", "small-norm-factorization", "--scale", "smoke", "--force")
SHORT = ("pipelines", "list")
BARE = """
import time
from apscheduler.schedulers.background import BackgroundScheduler
scheduler = BackgroundScheduler()
scheduler.add_job(print, "interval", hours=9)
scheduler.start()
time.sleep(1000)
"""


def main() -> None:
    """Measure, print, and record in the tracking store of the project."""
    from benchmarks.recording import temporary_database
    from pipelines import provenance, store, tracking

    tags = provenance.tags()
    print(f"{tags['cpu']}, {tags['cores']} cores")
    with temporary_database():
        store.client()  # makes it
        found = at_rest() | latency() | recording("claim", CLAIM) | recording("short", SHORT)
    with tracking.tracked("schedule", experiment="benchmarks", kind="benchmark") as run:
        for key, values in found.items():
            run.log({key: median(values)})
            print(f"{key:<28} {median(values):.3g} ({min(values):.3g} to {max(values):.3g})")


@contextmanager
def process(*words: str) -> Iterator[Any]:
    """A process of Python for as long as the block lasts, as psutil has it."""
    import psutil

    from pipelines.provenance import ROOT

    child = subprocess.Popen([sys.executable, *words], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        yield psutil.Process(child.pid)
    finally:
        child.terminate()
        child.wait()


def at_rest() -> dict[str, list[float]]:
    """Memory, in MB, and share of a core, in percent, of a server and of APScheduler alone."""
    with process("-m", "pipelines", "schedule", "serve") as server, process("-c", BARE) as bare:
        time.sleep(5.0)
        before = [sum(each.cpu_times()[:2]) for each in (server, bare)]
        time.sleep(REST_S)
        used = [sum(each.cpu_times()[:2]) for each in (server, bare)]
        cpu = [100 * (b - a) / REST_S for a, b in zip(before, used, strict=True)]
        memory = [each.memory_full_info().uss / 1e6 for each in (server, bare)]
    return {
        "rest_mb": [memory[0]],
        "rest_mb_more": [memory[0] - memory[1]],
        "rest_cpu_pct": [cpu[0]],
        "rest_cpu_pct_apscheduler": [cpu[1]],
    }


def latency() -> dict[str, list[float]]:
    """Seconds from a tick to the first line of the supervisor's child, the command."""
    from pipelines import schedule, store, timetable
    from pipelines.jobs import Job

    said, storage = store.home() / "first_lines.txt", timetable.place()
    words = ("benchmarks.schedule", str(said))
    with schedule.opened(storage) as found:
        found.add(Job(name="ticks", words=words, tz="UTC", every_s=EVERY_S))
        with process("-m", "pipelines", "schedule", "serve"):
            time.sleep(TICKS_S)
        rows = {row.folder: row for row in timetable.select(found.engine) if row.folder}
        found.remove("ticks")
    lines = [line.split(" ", 1) for line in said.read_text().splitlines()]
    late = [float(first) - rows[folder].tick for first, folder in lines]
    return {"tick_to_first_line_s": late}


def recording(name: str, words: tuple[str, ...]) -> dict[str, list[float]]:
    """Seconds that a command takes alone, and that an attempt with it takes more.

    From its start to its end in the table of ticks: what the next tick of the job waits for.
    """
    from pipelines import schedule, timetable
    from pipelines.jobs import Job

    alone: list[float] = []
    with schedule.opened(timetable.place()) as found:
        found.add(Job(name=name, words=words, tz="UTC", every_s=BETWEEN_S))
        for _ in range(ROUNDS):
            alone.append(timed(*words))
            with process("-m", "pipelines", "schedule", "serve"):
                time.sleep(2 * BETWEEN_S)  # one tick at least, and its end
            timed("pipelines", "schedule", "run-now", name)
        own = timetable.TICKS.c.job == name, timetable.TICKS.c.state == timetable.RAN
        rows = timetable.select(found.engine, *own)
        found.remove(name)
    usual = median(alone)
    return {
        f"{name}_alone_s": alone,
        f"{name}_recorded_more_s": [row.wall_s - usual for row in rows if not row.by_hand],
        f"{name}_by_hand_more_s": [row.wall_s - usual for row in rows if row.by_hand],
    }


def timed(*words: str) -> float:
    """Seconds of a command of ours."""
    from pipelines.provenance import ROOT

    start = time.perf_counter()
    run = [sys.executable, "-m", *words]
    subprocess.run(run, cwd=ROOT, check=True, capture_output=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    if len(sys.argv) > 1:
        with Path(sys.argv[1]).open("a") as file:
            file.write(f"{FIRST_LINE} {os.environ['SCHEDULED_ATTEMPT']}\n")
    else:
        main()
