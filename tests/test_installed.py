"""The wheel: what is in it, and that from any folder it is the same project as a checkout."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pipelines import __version__
from pipelines.errors import UserError
from pipelines.results import scoreboard
from pipelines.results.evidence import adding
from pipelines.runtime import places, subcommands
from pipelines.tracking import store
from tests.conftest import ROOT, command

CHOSEN = ("MLRUNS_HOME", "MLFLOW_TRACKING_URI", "PYTHONPATH")


def build(kind: str, source: Path, out: Path) -> Path:
    """Build a wheel or an sdist of a folder, by setuptools alone; its file."""
    program = f"import setuptools.build_meta as b; b.build_{kind}({str(out)!r})"
    subprocess.run([sys.executable, "-c", program], cwd=source, capture_output=True, check=True)
    (file,) = (each for each in out.iterdir() if each.suffix == {"wheel": ".whl"}.get(kind, ".gz"))
    return file


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the source distribution of this checkout."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(lambda name: (ROOT / name).is_file(), names.split("\0")):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    (source / "COMMIT").write_text("0123456789abcdef0123")
    with tarfile.open(build("sdist", source, out)) as archive:
        archive.extractall(out, filter="data")
    return build("wheel", out / f"near_identity-{__version__}", out)


def test_a_wheel_has_the_evidence_and_neither_tests_nor_benchmarks(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    shipped = {n.removeprefix("pipelines/shipped/") for n in members if "/shipped/" in n}
    evidence = {f"mlruns/evidence/{path.name}" for path in ROOT.glob("mlruns/evidence/*.zip")}
    figures = {f"figures/{path.name}" for path in ROOT.glob("figures/*.png")}
    assert shipped == evidence | figures | {"RESULTS.md", "results.json", "COMMIT"}
    for name in shipped - {"COMMIT"}:
        assert members[f"pipelines/shipped/{name}"] == (ROOT / name).read_bytes()
    packages = {name.partition("/")[0] for name in members if ".dist-info" not in name}
    assert packages == {"theory", "keras_models", "pipelines", "tuning"}
    assert {f"{package}/py.typed" for package in packages} <= members.keys()
    metadata = members[f"near_identity-{__version__}.dist-info/METADATA"].decode()
    assert "\nLicense-Expression: MIT\n" in metadata


def test_every_locked_package_has_digests_and_one_version() -> None:
    versions = defaultdict[str, set[str]](set)
    for file in ROOT.glob("requirements*.txt"):
        for block in re.split(r"\n(?=\w)", file.read_text()):
            name, pinned, version = block.partition(" ")[0].partition("==")
            assert pinned and re.search(r"--hash=sha256:[0-9a-f]{64}\b", block), (file, name)
            versions[name].add(version)
    assert {"keras", "jax", "torch", "uv"} <= versions.keys()
    assert {name: each for name, each in versions.items() if len(each) > 1} == {}


def test_the_citation_names_this_version() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__


def run(environment: Path, folder: Path, words: str) -> "subprocess.CompletedProcess[str]":
    """`near-identity WORDS` in a folder, by the package that is installed in an environment."""
    chosen = {key: value for key, value in os.environ.items() if key not in CHOSEN}
    return subprocess.run(
        [environment / "bin" / "near-identity", *words.split()],
        cwd=folder,
        env=chosen | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_installed_it_is_the_same_project_and_writes_into_the_current_folder(
    wheel: Path, digits: Path, tmp_path: Path
) -> None:
    environment, folder = tmp_path / "environment", tmp_path / "empty"
    venv.create(environment, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    (site / "shared.pth").write_text(sysconfig.get_path("purelib"))  # all packages but ours
    install = ["--python", str(environment / "bin" / "python"), "install", "--quiet", "--no-deps"]
    words = [*install, "--no-index", "--no-compile", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    folder.mkdir()
    (folder / "pipelines").mkdir()
    (folder / "pipelines" / "__init__.py").write_text("raise ValueError  # a user's own\n")
    before = {*environment.rglob("*")}

    done = run(environment, folder, "--version")
    assert done.stdout == f"near-identity {__version__}\n"
    for words in ("list", "show small-norm-factorization", "evidence check"):
        done, here = run(environment, folder, words), command("pipelines", *words.split())
        assert (done.returncode, done.stdout) == (0, here.stdout)
        assert not done.stderr or done.stderr.startswith(f"Reading the evidence in {site}/")
    assert not (folder / "mlruns").exists()

    done = run(environment, folder, "run gradient-formula --scale smoke")
    assert done.returncode == 0, done.stderr
    said = f"Runs are recorded in {folder / 'mlruns'}; set MLRUNS_HOME to choose another folder."
    assert done.stderr.splitlines().count(said) == 1
    for words in (
        "report",
        "doctor",
        "tune list",
        "schedule add data-check",
        "schedule run-now data-check",
    ):
        done = run(environment, folder, words)
        assert (done.returncode, said in done.stderr) == (0, False), done.stderr
        if words == "doctor":
            assert f"installed in {site}, of commit 0123456789ab\n" in done.stdout
            assert f"bundles in {site}/pipelines/shipped/mlruns/evidence" in done.stdout
            assert f"for runs in {folder}/mlruns" in done.stdout
    for words in ("report --publish", "evidence add gradient-formula", "evidence work"):
        done = run(environment, folder, words)
        assert (done.returncode, "needs a checkout" in done.stderr) == (2, True), done.stderr

    assert {path.name for path in folder.iterdir()} == {"mlruns", "pipelines"}
    assert (folder / "mlruns" / "report" / "RESULTS.md").exists()
    assert {*environment.rglob("*")} == before


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder, for code that is in no checkout."""
    for name in CHOSEN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(places, "is_checkout", lambda: False)
    monkeypatch.chdir(tmp_path)
    places._default_home.cache_clear()
    yield tmp_path
    places._default_home.cache_clear()


def test_without_a_checkout_the_home_is_in_the_folder_in_which_it_was_first_asked_for(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    home = elsewhere / "mlruns"
    assert store.home() == home
    (elsewhere / "below").mkdir()
    monkeypatch.chdir(elsewhere / "below")
    assert store.home() == home
    store.announce_home()
    said = f"Runs are recorded in {home}; set MLRUNS_HOME to choose another folder.\n"
    assert capfd.readouterr().err == said
    program = "import os; print(os.environ['MLRUNS_HOME'], os.getcwd())"
    (elsewhere / "below" / "told.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(elsewhere / "below"))
    subcommands.start(["told"], {}).wait()
    assert capfd.readouterr().out == f"{home} {elsewhere / 'below'}\n"
    home.mkdir()
    store.announce_home()
    assert capfd.readouterr().err == ""


def test_without_a_checkout_nothing_is_published(elsewhere: Path) -> None:
    with pytest.raises(UserError, match="`report --publish` writes what Git keeps, so it needs"):
        scoreboard.publish(elsewhere)
    with pytest.raises(UserError, match=r"`evidence add` .* needs a checkout of the project"):
        adding.add(["gradient-formula"])
    assert [*elsewhere.iterdir()] == []
