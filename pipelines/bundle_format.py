"""The file that `export` writes and `import` reads: a ZIP archive of runs, checked before use.

    runs/<run id>.json                       a run: everything but its files
    runs/<run id>/artifacts/<path>           its artifacts
    runs/<run id>/models/<model id>/<path>   the files of its logged models
    manifest.json                            what is in it, with sizes and digests

Such a file may come from anybody: `opened` reads all of it once before anything of it is used.
"""

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from pipelines.bundle_shape import check_manifest, check_run, check_tree, refused, wrong_name
from pipelines.errors import UserError

VERSION = 1
MANIFEST = "manifest.json"
EPOCH = (1980, 1, 1, 0, 0, 0)  # of every member: the same runs are the same bytes
CHUNK = 1 << 20  # bytes at a time
DOCUMENT_BYTES = 1 << 29  # of one JSON document, which is read as a whole
MEMBER = re.compile(r"runs/([0-9a-f]{32})(\.json|/artifacts/.+|/models/(m-[0-9a-f]{32})/.+)", re.S)
DAMAGED = (  # what zipfile and json raise for bytes that are not theirs
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    RuntimeError,
    OverflowError,
)


@dataclass
class Writer:
    """An archive that is being written; `written` makes one."""

    zipped: zipfile.ZipFile
    members: dict[str, dict[str, Any]] = field(default_factory=dict)

    def json(self, name: str, document: Mapping[str, Any]) -> None:
        text = json.dumps(document, sort_keys=True, allow_nan=False, separators=(",", ":"))
        if len(text) > DOCUMENT_BYTES:
            raise UserError(
                f"One document of an export must have at most {DOCUMENT_BYTES:,} bytes. Received: "
                f"{name} of {len(text):,}. Leave that run out, with names or --filter."
            )
        self._add(name, io.BytesIO(text.encode()), len(text))

    def file(self, name: str, path: Path) -> None:
        wrong = wrong_name(name)
        if wrong:
            raise UserError(
                f"{wrong} Received: an artifact named {name!r}. Rename it, or leave its run out, "
                "with names or --filter."
            )
        with path.open("rb") as source:
            self._add(name, source, path.stat().st_size)

    def _add(self, name: str, source: IO[bytes], size: int) -> None:
        info = zipfile.ZipInfo(name, EPOCH)
        info.compress_type, info.file_size, info.create_system = zipfile.ZIP_DEFLATED, size, 3
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
    half = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with half.open("wb") as raw:
            with zipfile.ZipFile(raw, "w") as zipped:
                yield Writer(zipped)
            raw.flush()
            os.fsync(raw.fileno())
        half.replace(file)
    except OSError as error:
        if error.errno is None:  # of a store that was asked over the network meanwhile
            raise
        raise UserError(
            "An export must be a file in a folder that can be written, on a disk with room. "
            f"Received: {file}: {error.strerror or error}. Name another file, or make room."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            half.unlink(missing_ok=True)


@dataclass(frozen=True)
class Archive:
    """An archive that has been checked; `opened` makes one."""

    zipped: zipfile.ZipFile
    manifest: Mapping[str, Any]
    files: Mapping[str, list[str]]
    """The members of every run but its document."""

    def run(self, run_id: str) -> dict[str, Any]:
        """The document of a run."""
        return _document(self.zipped, f"runs/{run_id}.json")

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
        try:
            zipped = stack.enter_context(zipfile.ZipFile(stack.enter_context(file.open("rb"))))
            archive = _checked(zipped, place, check)
        except OSError as error:
            raise UserError(
                "An import must name a file that `export` wrote and that can be read. Received: "
                f"{file}: {error.strerror or error}. Copy it here whole."
            ) from error
        except UserError:
            raise
        except DAMAGED as error:
            raise refused("The file must be a whole ZIP archive.", f"{file}: {error}") from error
        yield archive


def _checked(zipped: zipfile.ZipFile, place: Path, check: Callable[[Any], None]) -> Archive:
    names = [_admitted(info) for info in zipped.infolist()]
    check_tree(names)
    _check_room(sum(info.file_size for info in zipped.infolist()), place)
    if MANIFEST not in names:
        raise refused(f"The file must have a {MANIFEST}.", f"{len(names)} other members")
    manifest = _document(zipped, MANIFEST)
    check_manifest(manifest, VERSION)
    odd = sorted({MANIFEST, *manifest["members"]} ^ set(names))
    if odd:
        raise refused("The manifest must list every member that is there.", odd[0])
    for name, entry in manifest["members"].items():
        _check_bytes(zipped, name, entry)
    return Archive(zipped, manifest, _files(zipped, manifest, check))


def _files(
    zipped: zipfile.ZipFile, manifest: Mapping[str, Any], check: Callable[[Any], None]
) -> dict[str, list[str]]:
    """The files of every run, once all documents are what the manifest says."""
    owners: dict[str, Collection[str]] = {}
    for row in manifest["runs"]:
        name = f"runs/{row['run_id']}.json"
        if name not in manifest["members"] or row["run_id"] in owners:
            raise refused("The manifest must name every run once, with its document.", name)
        document = _document(zipped, name)
        check_run(document, row)
        check(document)
        owners[row["run_id"]] = ["", *(model["model_id"] for model in document["models"])]
    files: dict[str, list[str]] = {run_id: [] for run_id in owners}
    for name in manifest["members"]:
        found = MEMBER.fullmatch(name)
        run_id, kind, model = found.groups("") if found else ("", "", "")
        if model not in owners.get(run_id, ()):
            raise refused("Every member must belong to a run of the manifest.", name)
        if kind != ".json":
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


def _check_room(size: int, place: Path) -> None:
    free = shutil.disk_usage(next(p for p in (place, *place.parents) if p.exists())).free
    if size > free:
        raise UserError(
            f"An import needs room for all its files. Received: {size:,} bytes, and {free:,} free "
            f"at {place}. Make room, or export fewer runs."
        )


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
    if size > DOCUMENT_BYTES:
        raise refused(f"{name} must have at most {DOCUMENT_BYTES:,} bytes.", f"{size:,}")
    try:
        found = json.loads(zipped.read(name), parse_constant=_no_number)
        json.dumps(found, ensure_ascii=False).encode()  # no half of a surrogate pair
    except (ValueError, RecursionError) as error:
        raise refused(f"{name} must be JSON.", str(error)) from error
    if not isinstance(found, dict):
        raise refused(f"{name} must be a JSON object.", type(found).__name__)
    return found


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")
