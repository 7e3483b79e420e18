"""Kill commands at random moments and repeat them: they must end as if they had not been killed.

    python -m tests.torture --kills 100 --seed 0                      # half an hour on 2 idle cores
    python -m tests.torture --kills 20 --seed 3 --only sweep import

Every scenario is a command of the project. It runs once unkilled, which tells what it leaves and
how long its phases take; then again and again in tracking homes of their own, each killed up to
CHAIN times in a row, until it ends with success. After `recover` the home is compared with the
unkilled one (home_state.py). A line for every kill, a table at the end; exit code 1, with what is
wrong and the folder where it can be seen, where anything is.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests import home_state
from tests.conftest import ROOT, journals
from tests.postgres import new_database, postgres_url

CHAIN = 4  # kills of one home, at most
TERM_SHARE = 0.15  # of the kills: SIGTERM, not SIGKILL
LIMIT_S = 400.0  # a command that takes longer hangs
END_S = 30.0  # for what a killed command leaves running to end by itself
LANES = 2  # scenarios at once
TRIALS = 4
EXITS = {signal.SIGKILL: (-9, 0), signal.SIGTERM: (143, -15, 0)}  # the last: it was at its end
MLP = ("mlp-digits", "--scale", "smoke", "--steps")
TRAINING = ("pipelines", "run", *MLP, "60", "--checkpoint-every", "7", "--seeds")
SWEEP = ("pipelines", "sweep", "small-norm-factorization", "--grid", "d=8,32")
SWEEP += ("--grid", "l=8:128:2x", "--seeds", "4", "--workers", "2")
IMPORT, EXPORT = ("pipelines", "import", "{bundle}"), ("pipelines", "export", "{folder}/out/new")
STUDY = ("tuning", "run", "s", "--recipe", *MLP, "40", "--sampler", "random")
STUDY += ("--trials", str(TRIALS), "--storage", "{storage}")
Sign = Callable[[Path], Callable[[], bool]]
running: set[subprocess.Popen[bytes]] = set()


def written(pattern: str) -> Sign:
    """Return a sign that a file in the folder of a home is written after the sign is asked for."""

    def begin(folder: Path) -> Callable[[], bool]:
        since = time.time()

        def seen() -> bool:
            with contextlib.suppress(FileNotFoundError):
                return any(path.stat().st_mtime >= since for path in folder.glob(pattern))
            return False

        return seen

    return begin


def stores(folder: Path) -> Callable[[], bool]:
    """Return a sign that a training has read its test set, or writes the files of its model."""
    home = folder / "home"
    known, models = '"test_loss"' in journals(home), set(home.glob("artifacts/models/*"))

    def seen() -> bool:
        read = not known and '"test_loss"' in journals(home)
        return read or bool(set(home.glob("artifacts/models/*")) - models)

    return seen


BEGUN = {"begun": written("home/live/*.jsonl")}
TRAINS = {"training": written("home/artifacts/*/artifacts/learning_rate.png")}


@dataclass(frozen=True)
class Scenario:
    """A command, and in which of its phases what of it is killed how often."""

    name: str
    share: int
    """Of 100 kills."""
    words: Sequence[str]
    signs: dict[str, Sign]
    """How every phase after the start shows that it has begun, in their order."""
    weights: Sequence[int]
    """Of the start and the other phases."""
    targets: Sequence[str] = ("main", "main", "all")


FAMILY = ("main", "all", "child")
SCENARIOS = [
    Scenario("storing", 20, (*TRAINING, "1"), TRAINS | {"storing": stores}, (0, 1, 9)),
    Scenario("training", 18, (*TRAINING, "2"), TRAINS, (2, 8)),
    Scenario("study-postgresql", 10, (*STUDY, "--workers", "2"), BEGUN, (1, 9), FAMILY),
    Scenario("study-journal", 10, (*STUDY, "--workers", "2"), BEGUN, (1, 9), FAMILY),
    Scenario("study", 10, STUDY, BEGUN, (2, 8)),
    Scenario("sweep", 16, SWEEP, BEGUN, (1, 9), FAMILY),
    Scenario("import", 10, IMPORT, {"taking": written("home/live/import.lock")}, (1, 9)),
    Scenario("export", 6, EXPORT, {"writing": written("out/.*")}, (1, 5)),
]


class Bench:
    """One scenario: its unkilled command, and its repetitions with kills."""

    def __init__(self, scenario: Scenario, root: Path, server: str, seed: int) -> None:
        self.scenario, self.root, self.server, self.seed = scenario, root, server, seed
        self.phases: dict[str, float] = {}  # of the unkilled command, in seconds
        self.expected: list[home_state.Run] = []
        self.killed = Counter[str]()
        self.homes = self.wrong = 0
        self.seconds = 0.0

    @contextlib.contextmanager
    def storage(self, folder: Path) -> Iterator[str]:
        """Yield a new place for a study."""
        if self.scenario.name == "study-postgresql":
            with new_database(self.server) as url:
                yield url
        else:
            yield f"journal:///{folder}/home/optuna.journal"

    def start(
        self, folder: Path, storage: str, words: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        """Start the scenario's command, or another, on a home, in a process group of its own."""
        places = {"folder": folder, "bundle": self.root / "bundle.zip", "storage": storage}
        command = [word.format_map(places) for word in words or self.scenario.words]
        home = self.root / "source" if self.scenario.name == "export" else folder / "home"
        store = f"sqlite:///{home}/mlflow.db"  # one that is named takes in no evidence
        environment = {"MLFLOW_TRACKING_URI": store, "TFDS_DATA_DIR": str(self.root / "data")}
        for each in ("home", "out"):
            (folder / each).mkdir(parents=True, exist_ok=True)
        with (folder / "said.txt").open("ab", buffering=0) as said:
            said.write(f"--- {' '.join(command)}\n".encode())
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=ROOT,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        running.add(process)
        return process

    def measure(self) -> None:
        """Run the command unkilled: how long its phases take, and what it leaves."""
        folder = self.root / self.scenario.name / "unkilled"
        with self.storage(folder) as storage:
            signs = {phase: sign(folder) for phase, sign in self.scenario.signs.items()}
            times = {"start": time.monotonic()}
            process = self.start(folder, storage)
            while process.poll() is None:
                for phase in signs.keys() - times.keys():
                    if signs[phase]():
                        times[phase] = time.monotonic()
                time.sleep(0.003)
            ends = [*list(times.values())[1:], time.monotonic()]
            pairs = zip(times.items(), ends, strict=True)
            self.phases = {phase: end - begin for (phase, begin), end in pairs}
            if self.scenario.name != "export":
                self.expected = home_state.read(folder / "home")
            self.report(
                folder, [*_unless(end(process), (0,), "unkilled"), *self.wrongs(folder, storage)]
            )
        took = ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in self.phases.items())
        print(f"{self.scenario.name:17} unkilled: {took}", flush=True)

    def torture(self, kills: int) -> None:
        """Kill the command that many times, in as many homes as that takes."""
        began = time.monotonic()
        while sum(self.killed.values()) < kills and self.homes < 3 * kills:
            self.homes += 1
            folder = self.root / self.scenario.name / f"home-{self.homes}"
            with self.storage(folder) as storage:
                most = min(CHAIN, kills - sum(self.killed.values()))
                self.report(folder, self.repetition(folder, storage, most))
        self.seconds = time.monotonic() - began

    def repetition(self, folder: Path, storage: str, most: int) -> list[str]:
        """Kill the command several times in a row, let it end, and return what is wrong then."""
        chance = random.Random(f"{self.seed} {self.scenario.name} {self.homes}")  # noqa: S311
        found: list[str] = []
        for _ in range(most):
            code, wrong = self.attack(folder, storage, chance)
            found += wrong
            if code == 0:  # it ended before the kill, or in spite of it
                break
        for words in (self.scenario.words, ("pipelines", "recover")):
            code = end(self.start(folder, storage, words))
            found += _unless(code, (0,), " ".join(words[:3]))
        return found + self.wrongs(folder, storage)

    def attack(self, folder: Path, storage: str, chance: random.Random) -> tuple[int, list[str]]:
        """Start the command and kill it at a random moment: its exit code, and what is wrong."""
        scenario = self.scenario
        phase = chance.choices(["start", *scenario.signs], scenario.weights)[0]
        delay = chance.random() ** 2 * self.phases[phase]  # what is resumed has less to do
        number = signal.SIGTERM if chance.random() < TERM_SHARE else signal.SIGKILL
        target, began = chance.choice(scenario.targets), time.monotonic()
        begun = {"start": lambda: True} | {key: s(folder) for key, s in scenario.signs.items()}
        process = self.start(folder, storage)
        while process.poll() is None and not begun[phase]():
            time.sleep(0.003)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(delay)
        moment = f"{time.monotonic() - began:6.2f} s ({phase} + {delay:.2f})"
        hit = strike(process, target, number, chance)
        code = end(process)
        line = f"{scenario.name:17} home {self.homes:2}: {number.name} at {moment}, {hit}: {code}"
        print(line, flush=True)
        if hit == "nothing":
            return code, _unless(code, (0,), line)
        self.killed[f"{number.name} {hit.split()[0]}"] += 1
        return code, _unless(code, (0,) if "child" in hit else EXITS[number], line)

    def wrongs(self, folder: Path, storage: str) -> list[str]:
        """Return in what a home differs from the unkilled one, and what should never be there."""
        home, found = folder / "home", living(folder)
        if "Traceback (most recent" in (folder / "said.txt").read_text(errors="replace"):
            found.append("a traceback: see said.txt")
        if self.scenario.name == "export":
            names = sorted(path.name for path in (folder / "out").iterdir())
            same = names == ["new"] and members(folder / "out" / "new") == members(
                self.root / "bundle.zip"
            )
            return found + ([] if same else [f"not one whole bundle: {names}"])
        found += home_state.violations(home)
        if "study" in self.scenario.name:
            return found + home_state.study_violations(home, storage, TRIALS, self.expected)
        return found + home_state.differences(self.expected, home_state.read(home))

    def report(self, folder: Path, wrong: list[str]) -> None:
        """Print what is wrong with a home, and keep it; delete one that is whole."""
        self.wrong += len(wrong)
        for line in wrong:
            print(f"  WRONG {self.scenario.name} {folder.name}: {line}", flush=True)
        if wrong:
            print(f"  KEPT {folder}", flush=True)
        else:
            shutil.rmtree(folder)


def _unless(code: int, allowed: Sequence[int], line: str) -> list[str]:
    return [] if code in allowed else [f"exit code {code}: {line}"]


def end(process: subprocess.Popen[bytes]) -> int:
    """Wait for a command, and kill it where it hangs; its exit code."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(LIMIT_S)
    strike(process, "all", signal.SIGKILL, random.Random(0))  # noqa: S311
    running.discard(process)
    return process.wait()


def strike(
    process: subprocess.Popen[bytes], target: str, number: int, chance: random.Random
) -> str:
    """Send a signal to a command, to one of its children or to all; what was hit, in words."""
    if process.poll() is not None:
        return "nothing"
    children = psutil.Process(process.pid).children(recursive=True)
    pythons = [child.pid for child in children if _works(child)]
    one = [chance.choice(pythons)] if target == "child" and pythons else [process.pid]
    for pid in one + [child.pid for child in children if target == "all"]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    if target == "all":
        return f"all {1 + len(children)}"
    return "main" if one == [process.pid] else f"child {one[0]} of {len(pythons)}"


def _works(child: psutil.Process) -> bool:
    """Return whether a child is a worker; joblib's tracker of resources loses nothing, and says so.

    It is killed with all others alone: its next one prints what the first had known.
    """
    with contextlib.suppress(psutil.Error):
        return "python" in child.name() and "resource_tracker" not in " ".join(child.cmdline())
    return False


def living(folder: Path) -> list[str]:
    """Return the processes of a home that do not end some time after its commands have ended."""
    limit = time.monotonic() + END_S
    while found := [
        each
        for each in psutil.process_iter()
        if _store(each) == f"sqlite:///{folder}/home/mlflow.db"
    ]:
        if time.monotonic() > limit:
            return [f"a process that did not end: {each}" for each in found]
        time.sleep(0.5)
    return []


def _store(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("MLFLOW_TRACKING_URI")
    except psutil.Error:
        return None


def members(bundle: Path) -> dict[str, int]:
    """Return the names and checksums of what is in a bundle, but for its manifest."""
    with zipfile.ZipFile(bundle) as zipped:
        return {each.filename: each.CRC for each in zipped.infolist() if "/" in each.filename}


def prepare(root: Path, bundle: bool) -> None:
    """Prepare the data, and where it is asked for a bundle of trainings, models and a sweep."""
    bench, folder = Bench(SCENARIOS[-1], root, "", 0), root / "preparation"
    more = [(*TRAINING, "2"), SWEEP, ("pipelines", "export", "{bundle}")]
    for words in [("pipelines", "data", "prepare", "digits"), *(more if bundle else [])]:
        if end(bench.start(folder, "", words)):
            raise SystemExit((folder / "said.txt").read_text())


def stop(number: int, _: object) -> None:
    """End at once, with all that was started."""
    for process in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    os._exit(128 + number)


def main(arguments: Sequence[str]) -> int:
    """Torture the scenarios; 1 where anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[each.name for each in SCENARIOS])
    asked = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    root, began = Path(tempfile.mkdtemp(prefix="torture-")), time.monotonic()
    chosen = [each for each in SCENARIOS if each.name in asked.only]
    shares = sum(each.share for each in chosen)
    kills = [max(1, round(asked.kills * each.share / shares)) for each in chosen]
    with postgres_url() as server, ThreadPoolExecutor(LANES) as lanes:
        benches = [Bench(each, root, server, asked.seed) for each in chosen]
        prepare(root, bundle=any(each.words in (IMPORT, EXPORT) for each in chosen))
        list(lanes.map(Bench.measure, benches))
        list(lanes.map(Bench.torture, benches, kills))
    print(f"\n{'scenario':17} kills homes wrong  seconds  what was hit")
    for each in benches:
        hit = ", ".join(f"{n} {what}" for what, n in sorted(each.killed.items()))
        numbers = f"{each.killed.total():5} {each.homes:5} {each.wrong:5} {each.seconds:8.0f}"
        print(f"{each.scenario.name:17} {numbers}  {hit}")
    total, wrong = sum(each.killed.total() for each in benches), sum(each.wrong for each in benches)
    print(f"{total} kills, {wrong} violations, {time.monotonic() - began:.0f} s, seed {asked.seed}")
    if wrong == 0:
        shutil.rmtree(root)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
