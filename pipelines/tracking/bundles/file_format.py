"""The file that `export` writes and `import` reads: a ZIP archive of runs, checked before use.

    runs/<run id>.json                       a run: everything but its files
    runs/<run id>/artifacts/<path>           its artifacts
    runs/<run id>/models/<model id>/<path>   the files of its logged models
    manifest.json                            what is in it, with sizes and digests

Such a file may come from anybody: `open_archive` reads all of it once before any of it is used.
"""

import contextlib
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
from typing import IO, Any

from pipelines.errors import DAMAGE_ERRORS, Unavailable, UserError, disk_error
from pipelines.runtime.files import replace_whole
from pipelines.runtime.progress import progress_bar
from pipelines.tracking import model_files, store
from pipelines.tracking.bundles.shape import (
    EXPORT_AGAIN,
    LEAVE_OUT,
    READY,
    Document,
    Listed,
    Manifest,
    check_tree,
    manifest_of,
    refusal,
    run_of,
    wrong_name,
)

MANIFEST = "manifest.json"
EPOCH = (1980, 1, 1, 0, 0, 0)  # date of every member: the same runs are the same bytes
CHUNK = 1 << 20  # bytes at a time
MEMORY = 1 << 30  # one JSON document is read whole: six curves of 180,000 steps and more
A_BYTE, A_VALUE = 14, 90  # memory they take at most, as measured; a value begins at [, { or ,
PACKING, FREE = 100, 1 << 26  # larger unpacked, it is at most so many times the file: ours are 2-10
MEMBER = re.compile(r"runs/([0-9a-f]{32})(\.json|/artifacts/.+|/models/(m-[0-9a-f]{32})/.+)", re.S)


@dataclass
class Writer:
    """An archive that is being written; `create_archive` makes one."""

    zipped: zipfile.ZipFile
    members: dict[str, dict[str, Any]] = field(default_factory=dict)

    def json(self, name: str, document: Mapping[str, Any]) -> None:
        text = json.dumps(document, sort_keys=True, allow_nan=False, separators=(",", ":")).encode()
        _check_memory(name, len(text), _memory_needed(text), LEAVE_OUT)
        self._add(name, io.BytesIO(text), len(text))

    def file(self, name: str, path: Path) -> None:
        broken_rule = wrong_name(name)
        if broken_rule:
            raise refusal(broken_rule, f"an artifact named {name!r}", LEAVE_OUT)
        if path.name.lower() == model_files.MLMODEL.lower():
            try:  # an import would read it so
                if not _model_id(name):
                    raise ValueError("an artifact that MLflow would load as a model")
                model_files.check(path.parent)
            except ValueError as error:
                raise refusal(model_files.RULE, f"{name}: {error}", LEAVE_OUT) from error
        with path.open("rb") as source:
            self._add(name, source, path.stat().st_size)

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
def create_archive(file: Path) -> Iterator[Writer]:
    """Write an archive beside its place, and move it there at the end.

    Raise UserError if it cannot be written.
    """
    try:
        with replace_whole(file) as half, half.open("wb") as raw:
            with zipfile.ZipFile(raw, "w") as zipped:
                yield (writer := Writer(zipped))
            unpacked = sum(entry["bytes"] for entry in writer.members.values())
            _check_packing(unpacked, raw.tell(), LEAVE_OUT)
            raw.flush()
            os.fsync(raw.fileno())
    except OSError as error:
        if error.errno is None:  # the store was asked over the network meanwhile
            raise
        raise disk_error(error)(
            "An export must be a file in a folder that can be written, on a disk with room. "
            f"Received: {file}: {error.strerror or error}. Name another file, or make room."
        ) from error


@dataclass(frozen=True)
class Archive:
    """An archive that has been checked; `open_archive` makes one."""

    zipped: zipfile.ZipFile
    manifest: Manifest
    files: Mapping[str, list[str]]
    """The members of every run but its document."""

    def run(self, listed: Listed) -> Document:
        """Return the run that a line of the manifest names."""
        return run_of(_document(self.zipped, f"runs/{listed.run_id}.json"), listed)

    def artifact(self, run_id: str, name: str) -> bytes | None:
        """Return an artifact of a run; None where it has none of that name."""
        member = f"runs/{run_id}/artifacts/{name}"
        return self.zipped.read(member) if member in self.files.get(run_id, ()) else None

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
def open_archive(file: Path, place: Path, check: Callable[[Document], None]) -> Iterator[Archive]:
    """Open an archive of which every byte has been checked; call `check` with every document.

    UserError: the file cannot be read, is damaged or hostile, or `place` has no room for it.
    """
    with contextlib.ExitStack() as stack:
        with _explain_errors(file):
            zipped = stack.enter_context(zipfile.ZipFile(stack.enter_context(file.open("rb"))))
            archive = _check_archive(zipped, place, check)
        yield archive


def read_manifest(file: Path) -> Manifest:
    """Return the manifest of an archive, reading nothing else of it."""
    with _explain_errors(file), zipfile.ZipFile(file) as zipped:
        return _manifest(zipped)


def _manifest(zipped: zipfile.ZipFile) -> Manifest:
    names = zipped.namelist()
    if MANIFEST not in names:
        raise refusal(f"The file must have a {MANIFEST}.", f"{len(names)} other members")
    return manifest_of(_document(zipped, MANIFEST))


@contextmanager
def _explain_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            "An import must name a file that `export` wrote and that can be read. Received: "
            f"{file}: {error.strerror or error}. Copy it here whole."
        ) from error
    except (UserError, Unavailable):
        raise
    except DAMAGE_ERRORS as error:
        raise refusal("The file must be a whole ZIP archive.", f"{file}: {error}") from error


def _check_archive(
    zipped: zipfile.ZipFile, place: Path, check: Callable[[Document], None]
) -> Archive:
    for info in zipped.infolist():
        broken_rule = wrong_name(info.orig_filename)
        if not broken_rule and stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
            broken_rule = "A member must be a plain file, no link and no device."
        if broken_rule:
            raise refusal(broken_rule, repr(info.orig_filename))
    names = [info.filename for info in zipped.infolist()]
    check_tree(names)
    _check_size(sum(info.file_size for info in zipped.infolist()), zipped, place)
    manifest = _manifest(zipped)
    odd = sorted({MANIFEST, *manifest.members} ^ set(names))
    if odd:
        raise refusal("The manifest must list every member that is there.", odd[0])
    total = len(manifest.members) + len(manifest.runs)
    with progress_bar("check", total, "") as advance:
        for name, entry in manifest.members.items():
            if (size := zipped.getinfo(name).file_size) != entry.bytes:
                raise refusal(f"{name} must have {entry.bytes} bytes.", str(size))
            digest = hashlib.sha256()
            with zipped.open(name) as source:
                while chunk := source.read(CHUNK):
                    digest.update(chunk)
            if digest.hexdigest() != entry.sha256:
                raise refusal(f"{name} must have the digest of the manifest.", digest.hexdigest())
            advance(1, math.nan)
        archive = Archive(zipped, manifest, _files_by_run(zipped, manifest, check, advance))
    for run_id, names in archive.files.items():
        for model in sorted(filter(None, set(map(_model_id, names)))):
            with tempfile.TemporaryDirectory() as folder:  # it is not loaded
                archive.extract(run_id, f"models/{model}", Path(folder))
                try:
                    model_files.check(Path(folder))
                except ValueError as error:
                    raise refusal(model_files.RULE, f"in model {model}, {error}") from error
    return archive


def _files_by_run(
    zipped: zipfile.ZipFile,
    manifest: Manifest,
    check: Callable[[Document], None],
    advance: Callable[[int, float], None],
) -> dict[str, list[str]]:
    """Return the files of every run, once all documents are what the manifest says."""
    owners: dict[str, Collection[str]] = {}
    whole_models = {""}  # nothing of a half stored model is imported
    for listed in manifest.runs:
        name = f"runs/{listed.run_id}.json"
        if name not in manifest.members or listed.run_id in owners:
            raise refusal("The manifest must name every run once, with its document.", name)
        run = run_of(_document(zipped, name), listed)
        check(run)
        advance(1, math.nan)
        owners[run.run_id] = ["", *(model.model_id for model in run.models)]
        whole_models |= {model.model_id for model in run.models if model.status == READY}
    files: dict[str, list[str]] = {run_id: [] for run_id in owners}
    for name in manifest.members:
        match = MEMBER.fullmatch(name)
        run_id, kind, model = match.groups("") if match else ("", "", "")
        if model not in owners.get(run_id, ()):
            raise refusal("Every member must belong to a run of the manifest.", name)
        if not model and PurePosixPath(name).name.lower() == model_files.MLMODEL.lower():
            raise refusal(model_files.RULE, f"{name}, an artifact that MLflow would load as one")
        if kind != ".json" and model in whole_models:
            files[run_id].append(name)
    return files


def _model_id(name: str) -> str:
    """Return the id of the model to which a member belongs; empty for none."""
    match = MEMBER.fullmatch(name)
    return match[3] or "" if match else ""


def _check_size(size: int, zipped: zipfile.ZipFile, place: Path) -> None:
    """Raise UserError for members of that stated size that pack too well or have no room.

    No member is read further than its stated size.
    """
    _check_packing(size, os.fstat(zipped.fp.fileno()).st_size if zipped.fp else 0)
    free = shutil.disk_usage(next(p for p in (place, *place.parents) if p.exists())).free
    if size > free:
        raise Unavailable(
            f"An import needs room for all its files. Received: {size:,} bytes, and {free:,} free "
            f"at {place}. Make room, or export fewer runs."
        )


def _check_packing(unpacked: int, packed: int, fix: str = EXPORT_AGAIN) -> None:
    """Raise UserError for a file that packs too well: a small one could fill a disk."""
    if unpacked > max(FREE, PACKING * packed):
        rule = f"What has over {FREE:,} bytes unpacked must be at most {PACKING} times the file."
        raise refusal(rule, f"{packed:,} bytes, {unpacked:,} unpacked", fix)


def _document(zipped: zipfile.ZipFile, name: str) -> dict[str, Any]:
    """Return a JSON object. Raise UserError for anything else."""
    size = zipped.getinfo(name).file_size
    _check_memory(name, size, A_BYTE * size)
    text = zipped.read(name)
    _check_memory(name, size, _memory_needed(text))
    try:
        document = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise refusal(f"{name} must be JSON.", str(error)) from error
    if not isinstance(document, dict):
        raise refusal(f"{name} must be a JSON object.", type(document).__name__)
    return document


def _memory_needed(text: bytes) -> int:
    """Return the bytes of memory that reading a JSON document takes at most."""
    return A_BYTE * len(text) + A_VALUE * sum(map(text.count, (b"[", b"{", b",")))


def _check_memory(name: str, size: int, needed: int, fix: str = EXPORT_AGAIN) -> None:
    """Raise UserError for a document that takes too much memory as it is read."""
    if needed > MEMORY:
        rule = f"Reading one document must take at most {MEMORY >> 20} MiB."
        raise refusal(rule, f"{name}, {size:,} bytes", fix)


@contextmanager
def explain_failure(what: str, fix: str) -> Iterator[None]:
    """Raise Unavailable, one sentence, for a store that fails meanwhile."""
    try:
        yield
    except (OSError, store.unavailable()) as error:
        reason = " ".join(str(error).split())[:500]
        raise Unavailable(f"The tracking store must {what}. Received: {reason}. {fix}") from error
