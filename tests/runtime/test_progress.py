"""What a long command says: a line before slow imports; the bar, with loss and error beside it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import terminal
from tests.conftest import ROOT

SOURCE = """
import math, time
from pipelines.runtime.progress import progress_bar, show_numbers
show_numbers({"val_loss": 9.0})  # there is no bar yet
with progress_bar("allconv-cifar10-footnote5", 64_000, "images/s") as advance:
    advance(1, math.nan)
    show_numbers({"batch_loss": 0.5, "learning_rate": 0.1})
    advance(12_344, 7_654.3)
    time.sleep(0.2)
    show_numbers({"train_loss": 0.7, "val_loss": 0.4219, "val_error_pct": 12.34})
    time.sleep(0.2)
"""


@pytest.mark.parametrize(("columns", "has_rate"), [(80, False), (140, True)])
def test_a_bar_shows_loss_and_error(columns: int, has_rate: bool) -> None:
    written = terminal.output("-c", SOURCE, columns=columns)
    lines = [line for line in written.replace("\r", "\n").splitlines() if line.strip()]
    assert max(map(len, lines)) <= columns
    assert "7,654 images/s" in written
    [*_, last] = [line for line in lines if "loss" in line]
    assert "12345/64000" in last
    assert f"{'validation ' * has_rate}loss 0.422, error 12.3 %" in last
    assert ("7,654 images/s" in last) == has_rate


IMPORTS = """
import os, runpy, sys

told = os.dup(1)  # the project drops what is said while TensorFlow starts

class Told:
    def find_spec(self, name, path=None, target=None):
        if name in ("tensorflow", "keras", "mlflow", "optuna"):
            os.write(told, f"importing {name}\\n".encode())

sys.meta_path.insert(0, Told())
runpy.run_module(sys.argv.pop(1), run_name="__main__")
"""


@pytest.mark.parametrize(
    ("command", "first"),
    [
        ("pipelines run mlp-digits --scale smoke", "mlp-digits at smoke scale: 8 steps on digits"),
        ("pipelines run gradient-formula --scale smoke", "gradient-formula at smoke scale"),
        ("pipelines sweep gradient-formula --grid d=1 --seeds 1", "gradient-formula at cpu scale"),
        ("pipelines report", "Reading the recorded runs"),
        ("pipelines evidence plan two-phases", "Reading the evidence"),
        ("pipelines data check digits", "Reading digits"),
        ("pipelines doctor", "ok       Python "),
        (
            "tuning run s --recipe mlp-digits --scale smoke --trials 1",
            "Study s: mlp-digits at smoke",
        ),
    ],
)
def test_a_long_command_says_what_begins_before_it_loads_libraries(
    command: str, first: str, home: Path, digits: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", IMPORTS, *command.split()],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as child:
        assert child.stdout
        lines = iter(child.stdout)
        assert next(lines).startswith(first)
        assert any(line.startswith("importing ") for line in lines)
        child.kill()  # what it does then is not asked here


def test_json_is_all_that_a_long_command_prints(home: Path) -> None:
    words = ["-m", "pipelines", "watch", "--json"]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, check=True)
    assert json.loads(done.stdout)
    assert done.stderr == b""
