"""What do commands cost over the libraries they stand on, and over another checkout?

Each command is started as a person starts it, Python and all, in a home of its own that is deleted
afterwards; modules are compiled beforehand. The seconds are of the processor, of all processes; the
megabytes are the most that one process held. `/bare` is the ratio to the libraries alone doing the
same, `/baseline` that to the same command of another checkout with a `.venv` of its own; both in
the same round. It is said whether both checkouts write the same RESULTS.md, byte for byte.

    python -m benchmarks.commands [--baseline DIR]      6 minutes on 2 cores, 16 with a baseline
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import side_by_side
from pipelines.data import datasets
from pipelines.runtime import places

ROUNDS = 3
THEOREM = "gradient-formula"  # of all theorems the one that is measured fastest
TRAINING = "allconv-digits"
STUDY = ("run", "small", "--recipe", "mlp-digits", "--scale", "smoke", "--trials", "3")


@dataclass(frozen=True)
class Checkout:
    """A checkout of the project, and a home with what the commands read."""

    root: Path
    home: Path

    def cost(self, *words: str, home: Path | None = None) -> tuple[float, float]:
        """Run `python WORDS`; return its processor seconds and its peak memory in megabytes."""
        python = self.root / ".venv/bin/python"
        told = {
            places.HOME: str(home or self.home),
            "TFDS_DATA_DIR": str(datasets.data_home()),
            "PYTHONPYCACHEPREFIX": str(self.home / "bytecode"),
        }
        kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        with subprocess.Popen(
            [str(python) if python.exists() else sys.executable, *words],
            cwd=self.root,
            env=kept | told,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as child:
            return side_by_side.wait_for(child)

    def ours(self, *words: str, home: Path | None = None) -> tuple[float, float]:
        """Return the same of a command of `pipelines`."""
        return self.cost("-m", "pipelines", *words, home=home)

    def prepare(self) -> None:
        """Record a theorem and a study in the home, and its report: what comes to be read."""
        self.ours("run", THEOREM, "--scale", "smoke")
        self.cost("-m", "tuning", *STUDY)
        self.ours("report")

    def measure(self) -> dict[str, float]:
        """Return the costs of all commands, once each."""
        with new_home() as home:
            first_report = self.ours("report", home=home)
        with new_home() as home:
            imported = self.ours("evidence", "import", home=home)
            database = sum(file.stat().st_size for file in home.glob("mlflow.db*"))
        with new_home() as home:
            training = self.ours("run", TRAINING, "--scale", "smoke", home=home)
        costs = {
            "first report": first_report,
            "evidence import": imported,
            "evidence check": self.ours("evidence", "check"),
            "run that is found finished": self.ours("run", THEOREM, "--scale", "smoke"),
            "tuning list": self.cost("-m", "tuning", "list"),
            "doctor": self.ours("doctor"),
            "run of a training": training,
            "report again": self.ours("report"),
        }
        return {
            **{f"{name}: s": seconds for name, (seconds, _) in costs.items()},
            **{f"{name}: MB": megabytes for name, (_, megabytes) in costs.items()},
            "evidence import: MB of database": database / 1e6,
        }

    def measure_bare(self) -> dict[str, float]:
        """Return the processor seconds of the libraries alone, on the home of this checkout."""
        store, journal = f"sqlite:///{self.home}/mlflow.db", str(self.home / "optuna.journal")
        optuna = ("-c", "from optuna.cli import main; main()", "studies", "--storage-class")
        with new_home() as home:
            home.mkdir()
            ways = {
                "run that is found finished": ("-m", "benchmarks.bare_search", store, THEOREM),
                "tuning list": (*optuna, "JournalFileBackend", "--storage", journal),
                "run of a training": ("-m", "benchmarks.bare_training", f"sqlite:///{home}/it.db"),
            }
            return {name: self.cost(*words)[0] for name, words in ways.items()}


@contextmanager
def new_home() -> Iterator[Path]:
    """Yield a folder that is not there, and is deleted afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "home"


def main(words: Sequence[str]) -> None:
    """Measure, print, and record in the tracking store of the project."""
    side_by_side.print_title("Processor seconds and peak memory of whole commands")
    with tempfile.TemporaryDirectory() as folder:
        here = Checkout(places.ROOT, Path(folder) / "here")
        baseline = Checkout(Path(words[1]).resolve(), Path(folder) / "baseline") if words else None
        rounds = []
        for checkout in filter(None, [here, baseline]):
            checkout.prepare()
            checkout.measure()  # compiles the modules
        here.measure_bare()
        for _ in range(ROUNDS):
            numbers = here.measure()
            for name, seconds in here.measure_bare().items():
                numbers[f"{name}: s/bare"] = numbers[f"{name}: s"] / seconds
            if baseline:
                before = baseline.measure()
                numbers |= {f"{key}/baseline": numbers[key] / before[key] for key in before}
            rounds.append(numbers)
        if baseline:
            reports = {(each.home / "report/RESULTS.md").read_bytes() for each in (here, baseline)}
            print(f"RESULTS.md of both: {'the same' if len(reports) == 1 else 'NOT the same'}")
    side_by_side.report(
        "commands",
        {key: np.array([each[key] for each in rounds]) for key in sorted(rounds[0])},
        rounds=ROUNDS,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
