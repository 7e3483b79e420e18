"""Train on a borrowed machine that has Python with JAX, but no network and not our other packages.

    here   python deploy/borrowed_gpu.py pack OUT --data cifar10.npz --there there.txt
    there  python deploy/borrowed_gpu.py receive OUT/there.zip.1        and each other piece
           python deploy/borrowed_gpu.py train OUT allconv-cifar10 --scale paper
           python deploy/borrowed_gpu.py speed mixed_bfloat16
    here   python deploy/borrowed_gpu.py join OUT/home.zip.json         if it came in pieces
           python -m pipelines import OUT/home.zip

There, everything lies in one folder outside the checkout. The standard library is enough to run
this file; what pictures need, NumPy, is imported where they are packed. docs/how-to/borrowed-gpu.md
"""

import argparse
import hashlib
import io
import json
import lzma
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
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
PLATFORMS = ("_2_28", "_2_27", "_2_17", "2014")  # of manylinux; pip takes those that are named
# Differences of neighbouring pixels repeat nowhere, so that a small dictionary packs them best.
PACKING = [{"id": lzma.FILTER_LZMA2, "dict_size": 4096, "lc": 4, "lp": 0, "pb": 0}]
PACKING[0] |= {"mode": lzma.MODE_NORMAL, "mf": lzma.MF_HC4, "nice_len": 273, "depth": 1}


# Pictures without loss


def predict(pixels: Any, row: int, column: int) -> Any:
    """Return what the neighbours left and above say of a pixel of every picture, as JPEG-LS does.

    `pixels` is int16 [h, w, n, c]; only those before the pixel are read.
    """
    import numpy as np

    if row == 0 or column == 0:
        known = (row, column - 1) if column else (row - 1, 0)
        return pixels[known] if row or column else np.zeros_like(pixels[0, 0])
    left, above = pixels[row, column - 1], pixels[row - 1, column]
    plane = left + above - pixels[row - 1, column - 1]
    return np.clip(plane, np.minimum(left, above), np.maximum(left, above))


def pack_pictures(images: Any) -> bytes:
    """Return images uint8 [n, h, w, c] in a bit more than half of their bytes."""
    import numpy as np

    pixels = images.transpose(1, 2, 0, 3).astype(np.int16)
    errors = np.empty(pixels.shape, np.uint8)
    for row, column in np.ndindex(*pixels.shape[:2]):
        errors[row, column] = (pixels[row, column] - predict(pixels, row, column)) & 255
    if errors.shape[-1] == 3:
        errors[..., [0, 2]] -= errors[..., [1]]  # red and blue change where green does
    signed = errors.view(np.int8)
    sizes = ((signed << 1) ^ (signed >> 7)).view(np.uint8)  # 0, -1, 1, -2, ... are 0, 1, 2, 3, ...
    header = np.array(images.shape, "<u4").tobytes()
    return header + lzma.compress(sizes.transpose(3, 2, 0, 1).tobytes(), filters=PACKING)


def unpack_pictures(packed: bytes) -> Any:
    """Return the images that were packed."""
    import numpy as np

    count, height, width, channels = np.frombuffer(packed[:16], "<u4")
    sizes = np.frombuffer(lzma.decompress(packed[16:]), np.uint8)
    sizes = sizes.reshape(channels, count, height, width).transpose(2, 3, 1, 0)
    errors = (sizes >> 1) ^ (0 - (sizes & 1))
    if channels == 3:
        errors[..., [0, 2]] += errors[..., [1]]
    pixels = np.empty(errors.shape, np.int16)
    for row, column in np.ndindex(height, width):
        pixels[row, column] = (errors[row, column] + predict(pixels, row, column)) & 255
    return np.ascontiguousarray(pixels.transpose(2, 0, 1, 3).astype(np.uint8))


def pack_data(file: Path, small: Path) -> None:
    """Write a packed data set, NAME.npz of `data pack`, with its pictures made small."""
    import numpy as np

    with zipfile.ZipFile(file) as source, zipfile.ZipFile(small, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith("_images.npy"):
                content = pack_pictures(np.load(io.BytesIO(content)))
            target.writestr(name, content)


def unpack_data(small: Path, file: Path) -> None:
    """Write the NAME.npz that was packed. The product checks its arrays at every reading."""
    import numpy as np

    with zipfile.ZipFile(small) as source, zipfile.ZipFile(file, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith("_images.npy"):
                buffer = io.BytesIO()
                np.save(buffer, unpack_pictures(content))
                content = buffer.getvalue()
            with target.open(zipfile.ZipInfo(name), "w", force_zip64=name.endswith(".npy")) as part:
                part.write(content)


# Files in pieces


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def cut(file: Path, folder: Path, largest: float) -> Path:
    """Cut a file into pieces of at most so many MiB; return the path of their digests.

    They are written into the folder: NAME.1, NAME.2, ... and NAME.json.
    """
    content = file.read_bytes()
    count = math.ceil(len(content) / (largest * MIB))
    size = math.ceil(len(content) / count)
    digests = {}
    for number in range(count):
        piece = folder / f"{file.name}.{number + 1}"
        piece.write_bytes(content[number * size : (number + 1) * size])
        digests[piece.name] = digest(piece)
    manifest = folder / f"{file.name}.json"
    manifest.write_text(json.dumps(digests, indent=1))
    return manifest


def lacking(manifest: Path) -> list[str]:
    """Return the names of the pieces that are not beside the manifest, or are of another pack."""
    pieces = json.loads(manifest.read_text())
    beside = {name: manifest.with_name(name) for name in pieces}
    return [n for n, piece in beside.items() if not piece.exists() or digest(piece) != pieces[n]]


def join_pieces(manifest: Path) -> Path:
    """Write the file that was cut beside its pieces; return its path."""
    if names := lacking(manifest):
        sys.exit(f"Every piece must be here, undamaged. Lacking or damaged: {', '.join(names)}.")
    file = manifest.with_suffix("")
    with file.open("wb") as joined:
        for name in json.loads(manifest.read_text()):
            joined.write(manifest.with_name(name).read_bytes())
    return file


# Packages


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def requirements(there: Iterable[str]) -> dict[str, str]:
    """Return name==version by name of what a training needs that is not there already."""
    lines = (ROOT / "requirements-jax.txt").read_text().splitlines()
    pins = [line.partition(";")[0].strip() for line in lines if re.match(r"\w", line)]
    windows = {line.partition("==")[0] for line in lines if "== 'win32'" in line}
    named = {normal(pin.partition("==")[0]): pin for pin in pins}
    without = NOT_NEEDED | windows | {normal(re.split(r"\W*[=@ ]", name)[0]) for name in there}
    return {name: pin for name, pin in named.items() if name not in without}


def download(pins: Sequence[str], folder: Path, python: str) -> None:
    """Download the wheels of these packages for Linux on x86-64 and that Python."""
    platforms = [f"--platform=manylinux{each}_x86_64" for each in PLATFORMS]
    words = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "--implementation=cp"]
    words += [f"--python-version={python}", *platforms, f"--dest={folder}", *pins]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)


# What is done here and there


def pack(arguments: argparse.Namespace) -> None:
    """Write OUT/there.zip.1, ...: the packages that lack there, and the data."""
    out, data = arguments.out, arguments.data
    there = arguments.there.read_text().splitlines() if arguments.there else ()
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("there.zip.*"):
        old.unlink()
    with tempfile.TemporaryDirectory() as scratch:
        wheels, small = Path(scratch, "wheels"), Path(scratch, data.name)
        download([*requirements({*there, *JAX}).values()], wheels, arguments.python)
        pack_data(data, small)
        archive = Path(scratch, "there.zip")
        with zipfile.ZipFile(archive, "w") as target:
            for file in (*sorted(wheels.iterdir()), small):
                target.write(file, file.relative_to(scratch))
                print(f"{file.stat().st_size / MIB:7.2f} MiB  {file.name}")
        manifest = cut(archive, out, arguments.piece_mib)
    names = [*json.loads(manifest.read_text())]
    largest = max((out / name).stat().st_size for name in names) / MIB
    print(f"{len(names)} pieces of {largest:.1f} MiB in {out}. Carry {manifest.name} with each.")


def receive(arguments: argparse.Namespace) -> None:
    """Take pieces in; when the last is there, unpack the data and install the wheels."""
    folder = arguments.folder / "pieces"
    folder.mkdir(parents=True, exist_ok=True)
    for piece in arguments.pieces:
        manifest = piece.with_suffix(".json")
        if not (piece.is_file() and manifest.is_file()):
            sys.exit(f"A piece lies beside its manifest. Received: {piece}, {manifest}.")
        if digest(piece) != json.loads(manifest.read_text()).get(piece.name):
            sys.exit(f"{piece} is damaged, or of another pack than {manifest}. Carry it again.")
        for file in (piece, manifest):
            shutil.copy(file, folder)
    if names := lacking(folder / manifest.name):
        print(f"Received. Still lacking: {', '.join(names)}.")
        return
    install(join_pieces(folder / manifest.name), arguments.folder)


def install(archive: Path, folder: Path) -> None:
    """Unpack what was sent; install its wheels beside the packages of this Python."""
    site, data = folder / "site", folder / "data"
    data.mkdir(exist_ok=True)
    shutil.rmtree(site, ignore_errors=True)
    with zipfile.ZipFile(archive) as source:
        source.extractall(folder)
    for small in folder.glob("*.npz"):
        unpack_data(small, data / small.name)
    words = ["install", "--quiet", "--no-index", "--no-deps", "--no-compile", f"--target={site}"]
    wheels = map(str, (folder / "wheels").glob("*.whl"))
    subprocess.run([sys.executable, "-m", "pip", *words, *wheels], check=True)
    there = [each.name for each in metadata.distributions(path=[*sys.path, str(site)])]
    if lack := requirements(there):
        sys.exit(f"These packages lack: {', '.join(lack)}. Pack again, with a --there of this one.")
    print(f"All is installed in {folder}.")


def call(folder: Path, *words: str, **more: str) -> str:
    """Return what a command of the product prints, run with what was installed."""
    settings = {
        "PYTHONPATH": str(folder / "site"),
        "KERAS_BACKEND": "jax",
        "TFDS_DATA_DIR": str(folder / "data"),
        "MLRUNS_HOME": str(folder / "mlruns"),
        "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
        **more,
    }
    words = (sys.executable, "-m", *words)
    done = subprocess.run(
        words, cwd=ROOT, env=os.environ | settings, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def train(arguments: argparse.Namespace) -> None:
    """Train for a slice of time, or to the end; write the runs into OUT/home.zip."""
    out, name, folder = arguments.out.resolve(), arguments.name, arguments.folder
    minutes = ("--max-minutes", str(arguments.max_minutes), "--json")
    said = call(
        folder, "pipelines", "run", name, *minutes, *arguments.options, GIT_COMMIT=arguments.commit
    )
    print(said)
    out.mkdir(parents=True, exist_ok=True)
    home = out / "home.zip"
    print(call(folder, "pipelines", "export", str(home), name, "--without-models"))
    with zipfile.ZipFile(home) as bundle:
        for run in filter(re.compile(r"runs/\w+\.json").fullmatch, bundle.namelist()):
            document = json.loads(bundle.read(run))
            for _, _, rate in document["metrics"].get("images_per_s", [])[-1:]:
                print(f"{document['name']}: {rate:,.0f} images/s")
    if home.stat().st_size > arguments.piece_mib * MIB:
        cut(home, out, arguments.piece_mib)
        home.unlink()
    if json.loads(said).get("finished") is False:
        print("Not finished: repeat the command on this machine. Import the last home.zip alone.")


def speed(arguments: argparse.Namespace) -> None:
    """Print the images/s of HM's network, and their share of the peak of matrix products."""
    ways = (("calls", arguments.precision), ("product", arguments.precision))
    trained, peak = (
        json.loads(call(arguments.folder, "benchmarks.accelerator", *way)) for way in ways
    )
    share = trained[0] * trained[1] / peak
    print(f"{trained[0]:,.0f} images/s, {share:.1%} of {peak / 1000:,.1f} TFLOP/s")


def join(arguments: argparse.Namespace) -> None:
    """Put together what came home in pieces."""
    print(join_pieces(arguments.manifest))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)

    def command(action: Any, *names: str) -> argparse.ArgumentParser:
        added = commands.add_parser(action.__name__, help=action.__doc__)
        added.set_defaults(action=action)
        for name in names:
            added.add_argument(name, type=Path)
        return added

    packing = command(pack, "out")
    packing.add_argument("--data", type=Path, required=True, help="NAME.npz of `data pack`")
    packing.add_argument("--there", type=Path, help="`pip freeze` of there (default: JAX alone)")
    packing.add_argument("--python", default="3.12", help="its version there")
    packing.add_argument("--piece-mib", type=float, default=45, help="largest piece")
    receiving = command(receive)
    receiving.add_argument("pieces", type=Path, nargs="+")
    training = command(train, "out")
    training.add_argument("name", help="a claim or recipe; then options of `pipelines run`")
    training.add_argument("--max-minutes", type=float, default=9, help="then save and end")
    training.add_argument("--commit", default="unknown", help="of the checkout, without its .git")
    training.add_argument("--piece-mib", type=float, default=16, help="largest file to take home")
    measuring = command(speed)
    measuring.add_argument("precision", nargs="?", default="float32")
    for each in (receiving, training, measuring):
        each.add_argument("--folder", type=Path, default=Path.home() / "near-identity")
    command(join, "manifest")
    arguments, options = parser.parse_known_args()
    arguments.options = options
    arguments.action(arguments)


if __name__ == "__main__":
    main()
