"""Train on a borrowed machine that has Python with JAX, but no network and not our other packages.

    here   python deploy/borrowed_gpu.py pack OUT --data cifar10.npz --there there.txt
    there  python deploy/borrowed_gpu.py receive OUT/there.zip.1        and each other piece
           python deploy/borrowed_gpu.py train OUT allconv-cifar10 --scale paper
           python deploy/borrowed_gpu.py speed mixed_bfloat16
    here   python deploy/borrowed_gpu.py join OUT/home.zip.json         if it came in pieces
           python -m pipelines import OUT/home.zip

There, all lies in one folder outside the checkout. Python alone is enough for this file.
"""

import argparse
import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MIB = 1 << 20
JAX = {"jax", "jaxlib", "ml-dtypes", "numpy", "opt-einsum", "scipy"}
NOT_NEEDED = {  # by `run` and `export`
    *("mlflow-skinny", "mlflow-tracing"),  # mlflow's own wheel holds all their files
    *("plotly", "optuna-dashboard", "psycopg", "psycopg-binary"),
    *("aiohttp", "dask", "distributed", "grpcio"),
}
WHEELS = (  # for Linux on x86-64; pip takes those that are named
    *("--only-binary=:all:", "--implementation=cp"),
    *(f"--platform=manylinux{old}_x86_64" for old in ("_2_28", "_2_27", "_2_17", "2014")),
)
FOLDER = Path.home() / "near-identity"
HOME_MIB = 16  # largest file to take home


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def cut(file: Path, folder: Path, largest: float) -> dict[str, str]:
    """Write NAME.1, NAME.2, ... of at most so many MiB, and their digests, NAME.json."""
    content = file.read_bytes()
    size = math.ceil(len(content) / math.ceil(len(content) / (largest * MIB)))
    digests = {}
    for number, start in enumerate(range(0, len(content), size), 1):
        piece = folder / f"{file.name}.{number}"
        piece.write_bytes(content[start : start + size])
        digests[piece.name] = digest(piece)
    (folder / f"{file.name}.json").write_text(json.dumps(digests, indent=1))
    return digests


def find_lacking(manifest: Path) -> list[str]:
    """Return the names of the pieces that are not beside their digests, or differ from them."""
    digests = json.loads(manifest.read_text())
    beside = {name: manifest.with_name(name) for name in digests}
    return [n for n, piece in beside.items() if not piece.exists() or digest(piece) != digests[n]]


def join_pieces(manifest: Path) -> Path:
    """Write the file that was cut, beside its pieces; return its path."""
    if names := find_lacking(manifest):
        sys.exit(f"Every piece must be here as it was cut. Lacking or damaged: {', '.join(names)}.")
    file = manifest.with_suffix("")
    with file.open("wb") as joined:
        for name in json.loads(manifest.read_text()):
            joined.write(manifest.with_name(name).read_bytes())
    return file


def name_of(requirement: str) -> str:
    """Return the name in `Name==1.0`, `name @ file` or `name`, as every index writes it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement.strip())[0]).lower()


def find_needed(there: Iterable[str]) -> list[str]:
    """Return what a training needs, as name==version, beside the packages that are there."""
    lines = (ROOT / "requirements-jax.txt").read_text().splitlines()
    linux = [line for line in lines if re.match(r"\w", line) and "== 'win32'" not in line]
    pins = [re.split(r"[;\\]", line)[0].strip() for line in linux]  # without marker and digests
    without = NOT_NEEDED | {name_of(line) for line in there}
    return [pin for pin in pins if name_of(pin) not in without]


def run_pip(*words: str) -> None:
    if subprocess.run([sys.executable, "-m", "pip", *words], check=False).returncode:
        sys.exit("pip could not do it; its message stands above.")


def pack(arguments: argparse.Namespace) -> None:
    """Write OUT/there.zip.1, ...: the data, and the packages that lack there."""
    out, data = arguments.out, arguments.data
    if not data.is_file():
        sys.exit(f"--data is a file of `python -m pipelines data pack`. Received: {data}.")
    there = arguments.there.read_text().splitlines() if arguments.there else ()
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("there.zip.*"):
        old.unlink()
    with tempfile.TemporaryDirectory() as folder:
        archive, wheels = Path(folder, "there.zip"), Path(folder, "wheels")
        words = [f"--python-version={arguments.python}", f"--dest={wheels}", *WHEELS]
        run_pip("download", "--quiet", "--no-deps", *words, *find_needed([*there, *JAX]))
        with zipfile.ZipFile(archive, "w") as target:
            for wheel in sorted(wheels.iterdir()):
                target.write(wheel, f"wheels/{wheel.name}")
            target.write(data, f"data/{data.name}")
        names = cut(archive, out, arguments.piece_mib)
    largest = max((out / name).stat().st_size for name in names) / MIB
    print(f"{len(names)} pieces of {largest:.1f} MiB in {out}. Carry there.zip.json with each.")


def receive(arguments: argparse.Namespace) -> None:
    """Take pieces in; with the last of them, unpack the data and install the packages."""
    folder = arguments.folder / "pieces"
    folder.mkdir(parents=True, exist_ok=True)
    for piece in arguments.pieces:
        manifest = folder / piece.with_suffix(".json").name
        for file in (piece, piece.with_suffix(".json")):
            if not file.is_file():
                sys.exit(f"A piece and its digests lie in one folder. Lacking: {file}.")
            if file.resolve().parent != folder.resolve():
                shutil.copy(file, folder)
        if piece.name in (lacking := find_lacking(manifest)):
            sys.exit(f"{piece} is damaged, or of another pack than {manifest.name}. Send it again.")
    if lacking:
        print(f"Received. Still lacking: {', '.join(lacking)}.")
    else:
        install(join_pieces(manifest), arguments.folder)


def install(archive: Path, folder: Path) -> None:
    """Unpack what was sent; install its wheels beside the packages of this Python."""
    site, wheels = folder / "site", folder / "wheels"
    for old in (site, wheels):
        shutil.rmtree(old, ignore_errors=True)
    with zipfile.ZipFile(archive) as source:
        source.extractall(folder)
    words = ("--quiet", "--no-index", "--no-deps", "--no-compile", f"--target={site}")
    run_pip("install", *words, *map(str, wheels.glob("*.whl")))
    names = [each.name for each in metadata.distributions(path=[*sys.path, str(site)])]
    if lacking := find_needed(names):
        sys.exit(f"Packages lack here: {', '.join(lacking)}. Pack with a --there of this machine.")
    print(f"All is installed in {folder}.")


def call(folder: Path, *words: str, **more: str) -> tuple[int, str]:
    """Return the exit code and the output of a command of ours, with what was installed."""
    settings = {
        "PYTHONPATH": str(folder / "site"),
        "KERAS_BACKEND": "jax",
        "TFDS_DATA_DIR": str(folder / "data"),
        "MLRUNS_HOME": str(folder / "mlruns"),
        "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
    }
    environment = os.environ | settings | more
    words = (sys.executable, "-m", *words)
    done = subprocess.run(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=False)
    return done.returncode, done.stdout.decode()


def train(arguments: argparse.Namespace) -> None:
    """Train for some minutes, or to the end; write the runs into OUT/home.zip."""
    name, folder, home = arguments.name, arguments.folder, arguments.out.resolve() / "home.zip"
    options = (f"--max-minutes={arguments.max_minutes}", "--json", *arguments.options)
    code, result = call(folder, "pipelines", "run", name, *options, GIT_COMMIT=arguments.commit)
    home.parent.mkdir(parents=True, exist_ok=True)
    failed, listed = call(folder, "pipelines", "export", str(home), name, "--without-models")
    print(listed, end="")
    if failed:
        sys.exit(failed)
    for old in home.parent.glob(f"{home.name}.*"):  # pieces of an earlier slice
        old.unlink()
    if home.stat().st_size > HOME_MIB * MIB:
        cut(home, home.parent, HOME_MIB)
        home.unlink()
    if code:
        sys.exit(code)
    if json.loads(result).get("finished", True):
        print(result, end="")
    else:
        print("Repeat the command on this machine. Import the last home.zip alone.")


def speed(arguments: argparse.Namespace) -> None:
    """Print the images/s of HM's network, and their share of the peak of matrix products."""
    numbers = []
    for way in ("calls", "product"):
        code, output = call(arguments.folder, "benchmarks.accelerator", way, arguments.precision)
        if code:
            sys.exit(code)
        numbers.append(json.loads(output))
    (images_per_s, gflop), peak = numbers
    share = images_per_s * gflop / peak
    print(f"{images_per_s:,.0f} images/s, {share:.1%} of {peak / 1000:,.1f} TFLOP/s")


def join(arguments: argparse.Namespace) -> None:
    """Put together what came home in pieces."""
    print(join_pieces(arguments.manifest))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)

    def command(action: Callable[[argparse.Namespace], None]) -> Callable[..., Any]:
        added = commands.add_parser(action.__name__, help=action.__doc__, allow_abbrev=False)
        added.set_defaults(action=action)
        return added.add_argument

    add = command(pack)
    add("out", type=Path)
    add("--data", type=Path, required=True, help="NAME.npz of `data pack`")
    add("--there", type=Path, help="`pip list --format=freeze` of there (default: JAX alone)")
    add("--python", default="3.12", help="its version there")
    add("--piece-mib", type=float, default=45, help="largest piece")
    add = command(receive)
    add("pieces", type=Path, nargs="+")
    add("--folder", type=Path, default=FOLDER)
    add = command(train)
    add("out", type=Path)
    add("name", help="a claim or recipe; what else is given goes to `pipelines run`")
    add("--max-minutes", type=float, default=9, help="then save and end")
    add("--commit", default="unknown", help="of the checkout, where its .git is not there")
    add("--folder", type=Path, default=FOLDER)
    add = command(speed)
    add("precision", nargs="?", default="float32")
    add("--folder", type=Path, default=FOLDER)
    command(join)("manifest", type=Path)
    arguments, arguments.options = parser.parse_known_args()
    if arguments.options and arguments.action is not train:
        parser.error(f"unknown: {' '.join(arguments.options)}")
    arguments.action(arguments)


if __name__ == "__main__":
    main()
