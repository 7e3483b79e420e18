"""The file that `export` writes and `import` reads: a ZIP archive of runs, checked before use.

    runs/<run id>.json                       a run: everything but its files
    runs/<run id>/artifacts/<path>           its artifacts
    runs/<run id>/models/<model id>/<path>   the files of its logged models
    manifest.json                            what is in it, with sizes and digests

Such a file may come from anybody: `opened` reads all of it once before anything of it is used.
"""

import contextlib
import fcntl
import hashlib
import io
import json
import math
import os
import re
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO

from pipelines import model_files
from pipelines.bundle_shape import READY, check_manifest, check_run, check_tree, refused, wrong_name
from pipelines.errors import Unavailable, UserError, disk_error
from pipelines.progress import progress_bar

VERSION = 1
MANIFEST = "manifest.json"
EPOCH = (1980, 1, 1, 0, 0, 0)  # of every member: the same runs are the same bytes
CHUNK = 1 << 20  # bytes at a time
MEMORY = 1 << 30  # for one JSON document, read as a whole: six curves of 180,000 steps and more
A_BYTE, A_VALUE = 14, 90  # of that, at most, as measured; a value begins at [, { or ,
PACKING, FREE = 100, 1 << 26  # larger unpacked, it is at most so many times the file: ours are 2-10
MEMBER = re.compile(r"runs/([0-9a-f]{32})(\.json|/artifacts/.+|/models/(m-[0-9a-f]{32})/.+)", re.S)
SURROGATE = re.compile(rb"\\u[dD]")  # escaped, it may be half a character
HALF = ".half-export"  # ends the name of a file that is being written


@dataclass
class Writer:
    """An archive that is being written; `written` makes one."""

    zipped: zipfile.ZipFile
    members: dict[str, dict[str, Any]] = field(default_factory=dict)

    def json(self, name: str, document: Mapping[str, Any]) -> None:
        text = json.dumps(document, sort_keys=True, allow_nan=False, separators=(",", ":")).encode()
        if _memory(text) > MEMORY:
            rule, received = _too_large(name, len(text))
            raise UserError(f"{rule} Received: {received}. Leave runs out, with names or --filter.")
        self._add(name, io.BytesIO(text), len(text))

    def file(self, name: str, path: Path) -> None:
        wrong = wrong_name(name)
        if wrong:
            raise UserError(
                f"{wrong} Received: an artifact named {name!r}. Rename it, or leave its run out, "
                "with names or --filter."
            )
        if path.name.lower() == model_files.MLMODEL.lower():
            self._check_model(name, path)
        with path.open("rb") as source:
            self._add(name, source, path.stat().st_size)

    def _check_model(self, name: str, path: Path) -> None:
        """UserError for a model that an import would refuse."""
        try:
            if not _model(name):
                raise ValueError("an artifact that MLflow would load as a model")
            model_files.check(path.parent)
        except ValueError as error:
            raise UserError(
                f"{model_files.RULE} Received: {name}: {error}. Leave its run out, with names or "
                "--filter."
            ) from error

    def _add(self, name: str, source: IO[bytes], size: int) -> None:
        info = zipfile.ZipInfo(name, EPOCH)
        info.file_size, info.create_system = size, 3
        packed = name.endswith(model_files.NETWORK)  # weights, of which equal ones pack too well
        info.compress_type = zipfile.ZIP_STORED if packed else zipfile.ZIP_DEFLATED
        info.external_attr = (stat.S_IFREG | 0o644) << 16
        digest = hashlib.sha256()
        with self.zipped.open(info, "w") as target:
            while chunk := source.read(CHUNK):
                digest.update(chunk)
                target.write(chunk)
        self.members[name] = {"bytes": size, "sha256": digest.hexdigest()}


@contextmanager
def written(file: Path) -> Iterator[Writer]:
    """An archive beside its place, moved there at the end. UserError: it cannot be written."""
    try:
        with _half(file) as raw:
            with zipfile.ZipFile(raw, "w") as zipped:
                yield (writer := Writer(zipped))
            unpacked = sum(entry["bytes"] for entry in writer.members.values())
            if _packs_too_well(unpacked, raw.tell()):
                raise UserError(
                    f"An export may be {PACKING} times larger unpacked, or have {FREE:,} bytes. "
                    f"Received: {raw.tell():,} bytes, {unpacked:,} unpacked. Leave runs out, with "
                    "names or --filter."
                )
            raw.flush()
            os.fsync(raw.fileno())
            Path(raw.name).replace(file)
    except OSError as error:
        if error.errno is None:  # of a store that was asked over the network meanwhile
            raise
        raise disk_error(error)(
            "An export must be a file in a folder that can be written, on a disk with room. "
            f"Received: {file}: {error.strerror or error}. Name another file, or make room."
        ) from error


@contextmanager
def _half(file: Path) -> Iterator[BinaryIO]:
    """A new file beside an export, deleted where it still is; so are those that kills have left.

    Its process holds a lock on it, which the system lifts when that ends.
    """
    for path in file.parent.glob(f".*{HALF}"):
        with contextlib.suppress(OSError), path.open("rb") as old:
            fcntl.flock(old, fcntl.LOCK_EX | fcntl.LOCK_NB)  # OSError: its process lives
            path.unlink()
    path = file.with_name(f".{file.name}.{os.getpid()}{HALF}")
    try:
        with _lock_new_file(path) as raw:
            yield raw
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _lock_new_file(path: Path) -> BinaryIO:
    """A new file, locked where the disk knows locks; made again where another export deleted it."""
    while True:
        raw = path.open("wb")
        with contextlib.suppress(OSError):
            fcntl.flock(raw, fcntl.LOCK_EX)
        if os.fstat(raw.fileno()).st_nlink:
            return raw
        raw.close()


@dataclass(frozen=True)
class Archive:
    """An archive that has been checked; `opened` makes one."""

    zipped: zipfile.ZipFile
    manifest: Mapping[str, Any]
    files: Mapping[str, list[str]]
    """The members of every run but its document."""

    def run(self, run_id: str) -> dict[str, Any]:
        """The document of a run, checked when the archive was opened."""
        document: dict[str, Any] = json.loads(self.zipped.read(f"runs/{run_id}.json"))
        return document

    def extract(self, run_id: str, below: str, folder: Path) -> bool:
        """Write the files of a run below `artifacts` or a model; False where there is none."""
        prefix = f"runs/{run_id}/{below}/"
        names = [name for name in self.files.get(run_id, ()) if name.startswith(prefix)]
        for name in names:
            target = folder / name.removeprefix(prefix)
            target.parent.mkdir(parents=True, exist_ok=True)
            with self.zipped.open(name) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file, CHUNK)
        return bool(names)


@contextmanager
def opened(file: Path, place: Path, check: Callable[[Any], None]) -> Iterator[Archive]:
    """An archive of which every byte has been checked; `check` is told every run's document.

    UserError: the file cannot be read, is damaged or hostile, or `place` has no room for it.
    """
    with contextlib.ExitStack() as stack:
        with _sentences(file):
            zipped = stack.enter_context(zipfile.ZipFile(stack.enter_context(file.open("rb"))))
            archive = _checked(zipped, place, check)
        yield archive


def read_manifest(file: Path) -> dict[str, Any]:
    """Return the manifest of an archive, of which nothing else is read; UserError as `opened`."""
    with _sentences(file), zipfile.ZipFile(file) as zipped:
        return _manifest(zipped)


def _manifest(zipped: zipfile.ZipFile) -> dict[str, Any]:
    names = zipped.namelist()
    if MANIFEST not in names:
        raise refused(f"The file must have a {MANIFEST}.", f"{len(names)} other members")
    manifest = _document(zipped, MANIFEST)
    check_manifest(manifest, VERSION)
    return manifest


@contextmanager
def _sentences(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            "An import must name a file that `export` wrote and that can be read. Received: "
            f"{file}: {error.strerror or error}. Copy it here whole."
        ) from error
    except (UserError, Unavailable):
        raise
    except model_files.DAMAGED as error:
        raise refused("The file must be a whole ZIP archive.", f"{file}: {error}") from error


def _checked(zipped: zipfile.ZipFile, place: Path, check: Callable[[Any], None]) -> Archive:
    names = [_admitted(info) for info in zipped.infolist()]
    check_tree(names)
    _check_size(sum(info.file_size for info in zipped.infolist()), zipped, place)
    manifest = _manifest(zipped)
    odd = sorted({MANIFEST, *manifest["members"]} ^ set(names))
    if odd:
        raise refused("The manifest must list every member that is there.", odd[0])
    total = len(manifest["members"]) + len(manifest["runs"])
    with progress_bar("check", total, "") as advance:
        for name, entry in manifest["members"].items():
            _check_bytes(zipped, name, entry)
            advance(1, math.nan)
        archive = Archive(zipped, manifest, _files(zipped, manifest, check, advance))
    _check_models(archive)
    return archive


def _files(
    zipped: zipfile.ZipFile,
    manifest: Mapping[str, Any],
    check: Callable[[Any], None],
    advance: Callable[[int, float], None],
) -> dict[str, list[str]]:
    """The files of every run, once all documents are what the manifest says."""
    owners: dict[str, Collection[str]] = {}
    whole = {""}  # of a model that a kill has left half stored nothing is taken in
    for row in manifest["runs"]:
        name = f"runs/{row['run_id']}.json"
        if name not in manifest["members"] or row["run_id"] in owners:
            raise refused("The manifest must name every run once, with its document.", name)
        document = _document(zipped, name)
        check_run(document, row)
        check(document)
        advance(1, math.nan)
        owners[row["run_id"]] = ["", *(model["model_id"] for model in document["models"])]
        whole |= {model["model_id"] for model in document["models"] if model["status"] == READY}
    files: dict[str, list[str]] = {run_id: [] for run_id in owners}
    for name in manifest["members"]:
        found = MEMBER.fullmatch(name)
        run_id, kind, model = found.groups("") if found else ("", "", "")
        if model not in owners.get(run_id, ()):
            raise refused("Every member must belong to a run of the manifest.", name)
        if not model and PurePosixPath(name).name.lower() == model_files.MLMODEL.lower():
            raise refused(model_files.RULE, f"{name}, an artifact that MLflow would load as one")
        if kind != ".json" and model in whole:
            files[run_id].append(name)
    return files


def _admitted(info: zipfile.ZipInfo) -> str:
    """The name of a member that is a plain file, in no way that surprises."""
    wrong = wrong_name(info.orig_filename)
    kind = stat.S_IFMT(info.external_attr >> 16)
    if not wrong and kind not in (0, stat.S_IFREG):
        wrong = "A member must be a plain file, no link and no device."
    if not wrong and info.flag_bits & 1:
        wrong = "No member may be encrypted."
    if not wrong and info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        wrong = "A member must be stored or deflated."
    if wrong:
        raise refused(wrong, repr(info.orig_filename))
    return info.filename


def _check_models(archive: Archive) -> None:
    """UserError for a model that is not as this project stores one; none is loaded."""
    for run_id, names in archive.files.items():
        for model in sorted(filter(None, set(map(_model, names)))):
            with tempfile.TemporaryDirectory() as folder:
                archive.extract(run_id, f"models/{model}", Path(folder))
                try:
                    model_files.check(Path(folder))
                except ValueError as error:
                    raise refused(model_files.RULE, f"in model {model}, {error}") from error


def _model(name: str) -> str:
    """The id of the model to which a member belongs; empty for none."""
    found = MEMBER.fullmatch(name)
    return found[3] or "" if found else ""


def _check_size(size: int, zipped: zipfile.ZipFile, place: Path) -> None:
    """UserError for members of that size, as they are stated, that pack too well or have no room.

    No member is read further than its stated size.
    """
    packed = os.fstat(zipped.fp.fileno()).st_size if zipped.fp else 0
    if _packs_too_well(size, packed):
        raise refused(
            f"What has over {FREE:,} bytes unpacked must be at most {PACKING} times the file.",
            f"{packed:,} bytes, {size:,} unpacked",
        )
    free = shutil.disk_usage(next(p for p in (place, *place.parents) if p.exists())).free
    if size > free:
        raise Unavailable(
            f"An import needs room for all its files. Received: {size:,} bytes, and {free:,} free "
            f"at {place}. Make room, or export fewer runs."
        )


def _packs_too_well(unpacked: int, packed: int) -> bool:
    return unpacked > max(FREE, PACKING * packed)


def _check_bytes(zipped: zipfile.ZipFile, name: str, entry: Mapping[str, Any]) -> None:
    found = zipped.getinfo(name).file_size
    if found != entry["bytes"]:
        raise refused(f"{name} must have {entry['bytes']} bytes.", str(found))
    digest = hashlib.sha256()
    with zipped.open(name) as source:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != entry["sha256"]:
        raise refused(f"{name} must have the digest of the manifest.", digest.hexdigest())


def _document(zipped: zipfile.ZipFile, name: str) -> dict[str, Any]:
    """A JSON object: numbers finite, texts such that every database takes them."""
    size = zipped.getinfo(name).file_size
    text = zipped.read(name) if A_BYTE * size <= MEMORY else b""
    if A_BYTE * size > MEMORY or _memory(text) > MEMORY:
        raise refused(*_too_large(name, size))
    try:
        found = json.loads(text.decode(), parse_constant=_finite, parse_float=_finite)
        if SURROGATE.search(text):
            json.dumps(found, ensure_ascii=False).encode()  # no half of a pair
    except (ValueError, RecursionError) as error:
        raise refused(f"{name} must be JSON.", str(error)) from error
    if not isinstance(found, dict):
        raise refused(f"{name} must be a JSON object.", type(found).__name__)
    return found


def _memory(text: bytes) -> int:
    """The bytes of memory that reading a JSON document takes at most."""
    return A_BYTE * len(text) + A_VALUE * sum(map(text.count, (b"[", b"{", b",")))


def _too_large(name: str, size: int) -> tuple[str, str]:
    """The rule for one document, and what was received."""
    return f"Reading one document must take at most {MEMORY >> 20} MiB.", f"{name}, {size:,} bytes"


def _finite(text: str) -> float:
    """Read a number; ValueError for one that JSON or a database cannot hold."""
    if math.isfinite(number := float(text)):
        return number
    raise ValueError(f"{text} is no number of JSON")
