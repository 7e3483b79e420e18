"""What travels to a machine without a network, and back: nothing is lost, damage is refused."""

import runpy
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.conftest import ROOT

FILE = ROOT / "deploy" / "borrowed_gpu.py"
script = SimpleNamespace(**runpy.run_path(str(FILE)))


def call(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FILE), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_file_comes_home_in_pieces(tmp_path: Path) -> None:
    file = tmp_path / "home.zip"
    file.write_bytes(content := np.random.default_rng(0).bytes(2500))
    pieces = script.cut(file, tmp_path, 1000 / script.MIB)
    assert all((tmp_path / piece).stat().st_size <= 1000 for piece in pieces)
    file.unlink()
    assert call("join", tmp_path / "home.zip.json").returncode == 0
    assert file.read_bytes() == content


@pytest.mark.parametrize("damage", [lambda p: p.unlink(), lambda p: p.write_bytes(b"other")])
def test_a_lacking_or_damaged_piece_is_named(tmp_path: Path, damage: object) -> None:
    (tmp_path / "home.zip").write_bytes(bytes(3000))
    script.cut(tmp_path / "home.zip", tmp_path, 1000 / script.MIB)
    damage(tmp_path / "home.zip.2")
    done = call("join", tmp_path / "home.zip.json")
    assert done.returncode == 1
    assert done.stderr == (
        "Every piece must be here as it was cut. Lacking or damaged: home.zip.2.\n"
    )


def test_the_last_piece_installs_packages_and_data(tmp_path: Path) -> None:
    carried, folder = tmp_path / "carried", tmp_path / "there"
    carried.mkdir()
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "")
        archive.writestr("tiny-1.0.dist-info/METADATA", "Name: tiny\nVersion: 1.0\n")
        archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    with zipfile.ZipFile(tmp_path / "there.zip", "w") as archive:
        archive.write(wheel, f"wheels/{wheel.name}")
        archive.writestr("data/drawn.npz", pictures := bytes(1000))
    size = (tmp_path / "there.zip").stat().st_size
    first, last = script.cut(tmp_path / "there.zip", carried, size / 2 / script.MIB)

    done = call("receive", carried / first, "--folder", folder)
    assert done.stdout == f"Received. Still lacking: {last}.\n"
    whole = (carried / last).read_bytes()
    (carried / last).write_bytes(whole[:-1])
    done = call("receive", carried / last, "--folder", folder)
    assert (done.returncode, "is damaged" in done.stderr) == (1, True)
    (carried / last).write_bytes(whole)
    done = call("receive", carried / last, "--folder", folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "site" / "tiny.py").exists()
    assert (folder / "data" / "drawn.npz").read_bytes() == pictures


def test_what_is_there_already_is_not_carried() -> None:
    needed = {
        script.name_of(line) for line in script.find_needed(["ml_dtypes==1", "Keras", "PyYAML"])
    }
    assert {"mlflow", "sqlalchemy", "numpy"} <= needed
    assert needed.isdisjoint({"keras", "ml-dtypes", "pyyaml", "pywin32", *script.NOT_NEEDED})


@pytest.mark.slow
def test_a_training_needs_no_package_that_is_left_behind(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLRUNS_HOME", str(tmp_path))
    modules = {name.replace("-", "_") for name in script.NOT_NEEDED} - {"mlflow_skinny"}
    blocked = sorted(modules - {"grpcio"} | {"grpc"})
    program = (
        f"import runpy, sys; sys.modules |= dict.fromkeys({blocked}); "
        "runpy.run_module('pipelines', run_name='__main__', alter_sys=True)"
    )
    for words in (
        ["run", "mlp-digits", "--scale", "smoke", "--max-minutes", "9", "--json"],
        ["export", str(tmp_path / "home.zip"), "mlp-digits", "--without-models"],
    ):
        command = [sys.executable, "-c", program, *words]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    assert (tmp_path / "home.zip").exists()
