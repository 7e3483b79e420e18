"""`python -m tuning` as a person types it: quick to answer, one sentence for a mistake."""

import importlib.util
import json
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.cli.shell import run_command_safely
from pipelines.tracking import history
from tests.conftest import ROOT, command, free_port
from tuning import catalog
from tuning.__main__ import dispatch
from tuning.storage import storage

SMOKE = ["--recipe", "mlp-digits", "--scale", "smoke"]
MISTAKES = [
    ("run", "s", "--recipe", "mlp-digits", "--scale", "paper"),
    ("run", "s", *SMOKE, "--proxy", "allconv-cifar10"),
    ("run", "s", *SMOKE, "--minimize-cost", "--pruner", "median"),
    ("run", "s", *SMOKE, "--sampler", "grid", "--trials", "3"),
    ("run", "s", *SMOKE, "--storage", "redis://127.0.0.1:{port}"),
    ("run", "s", *SMOKE, "--storage", "sqlite:////proc/no/folder.db"),
    ("run", "s s", *SMOKE),
    ("run", "s", "--recipe", "linear-teacher"),
    ("run", "s", "--trial", "3"),
    ("resume", "nothing"),
    ("show", "nothing"),
    ("best", "nothing"),
    ("work", "nothing"),
    ("compare", "nothing"),
    ("compare", "nothing", "nobody"),
    ("dashboard", "--port", "{taken}"),
]
AWAY = [  # what may answer later: no mistake
    ("run", "s", *SMOKE, "--storage", "postgresql://127.0.0.1:{port}/x"),
    ("run", "s", *SMOKE, "--storage", "grpc://127.0.0.1:{port}"),
]


@pytest.mark.parametrize("words", [*MISTAKES, *AWAY], ids=lambda words: " ".join(words)[-40:])
def test_a_mistake_is_one_sentence(
    words: tuple[str, ...],
    home: Path,
    digits: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(storage, "CONNECT_S", 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = {"port": free_port(), "taken": taken.getsockname()[1]}
        code = run_command_safely(dispatch, [word.format(**ports) for word in words])
    said = capsys.readouterr()
    assert code == (1 if words in AWAY else 2), said
    *begun, error = said.err.splitlines()
    assert error.startswith("error: ")
    assert [line.split()[0] for line in begun] in ([], ["Study"]), said.err
    assert "Received" in error or "--trial" in error
    assert said.out == ""
    assert not history.rows(None)


def test_gp_without_pytorch_is_refused_before_there_is_a_study(
    home: Path, digits: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *at: None if name == "torch" else there(name, *at)
    )
    assert run_command_safely(dispatch, ["run", "s", *SMOKE, "--sampler", "gp"]) == 2
    begun, error = capsys.readouterr().err.splitlines()
    assert begun.startswith("Study s: ")
    assert error.startswith("error: The sampler gp needs PyTorch. Received: --sampler gp")
    assert catalog.list_studies() == []


@pytest.mark.slow
def test_a_study_is_searched_shown_compared_and_its_best_pasted(
    home: Path, digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def output_of(*words: str) -> str:
        assert run_command_safely(dispatch, list(words)) == 0
        return capsys.readouterr().out

    document = json.loads(output_of("run", "s", *SMOKE, "--trials", "6", "--json"))
    output_of("run", "t", *SMOKE, "--trials", "2", "--space", "lr-only")
    assert run_command_safely(dispatch, ["best", "s"]) == 0
    said = capsys.readouterr()  # the options alone are pasted
    best = said.out.strip()
    assert "Best by validation error" in said.err
    assert said.err.endswith("Its options, to paste after python -m pipelines run mlp-digits:\n")
    assert best == f"--scale smoke {document['best']}"
    assert best in output_of("show", "s").splitlines()[-1]
    assert "by the recipe's own schedule" in output_of("show", "s")
    picture = tmp_path / "both.png"
    compared = output_of("compare", "s", "t", "--out", str(picture))
    assert "gain over its start" in compared
    assert compared.endswith(f"as a picture: {picture.resolve()}\n")
    assert picture.stat().st_size > 10_000
    assert "figure" not in json.loads(output_of("compare", "s", "t", "--json"))
    assert [line.split()[0] for line in output_of("list").splitlines()] == ["s", "t"]
    from pipelines.__main__ import dispatch as pipelines

    assert run_command_safely(pipelines, ["run", "mlp-digits", *shlex.split(best)]) == 0
    winner = min(document["trials"], key=lambda each: each["val_error_pct"])
    (again,) = [row for row in history.rows(kind="training") if row.params["seed"] == "0"]
    assert again.metrics["val_error_pct"] == winner["val_error_pct"]


def test_help_answers_without_heavy_libraries() -> None:
    heavy = {"keras", "tensorflow", "mlflow", "optuna", "matplotlib", "sklearn", "scipy"}
    program = (
        "import sys; from tuning.__main__ import dispatch\n"
        "try: dispatch(['run', 's', '--help'])\n"
        f"except SystemExit: sys.exit(len({heavy} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


def test_help_names_every_command() -> None:
    said = command("tuning", "--help").stdout
    for name in ["run", "resume", "work", "list", "show", "best", "compare", "copy", "dashboard"]:
        assert name in said
