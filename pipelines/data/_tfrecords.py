"""Random access to the records of TFRecord files, the format that tensorflow-datasets writes.

A file is a sequence of records: length (8 bytes, little-endian), masked CRC-32C of the length (4),
data, masked CRC-32C of the data (4); https://www.tensorflow.org/tutorials/load_data/tfrecord.
The index is made from the lengths alone: one read of 12 bytes a record.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.errors import DAMAGE_ERRORS, Unavailable, UserError
from pipelines.runtime.files import replace_whole

HEAD, TAIL = 12, 4  # bytes around the data of a record
OPEN = 256  # files kept open; the usual limit of a process is 1,024
THREADS = 16  # files indexed at once: on a network each read waits for an answer


class Files:
    """Files that any thread may read; the first OPEN of them stay open."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = tuple(paths)
        self._open: dict[int, int] = {}

    def read(self, file: int, size: int, offset: int) -> bytes:
        """Return `size` bytes at `offset` of the file of that number; fewer where it ends."""
        open_file = self._open.get(file)
        if open_file is not None:
            return os.pread(open_file, size, offset)
        descriptor = os.open(self.paths[file], os.O_RDONLY)
        try:
            return os.pread(descriptor, size, offset)
        finally:
            if len(self._open) >= OPEN or self._open.setdefault(file, descriptor) != descriptor:
                os.close(descriptor)

    def __del__(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)


@dataclass(frozen=True, eq=False)
class Records:
    """Records start..stop-1 of all those in the files, in stored order.

    `ends` [f] counts the records up to the end of each file; `offsets` and `lengths` [n] say where
    the data of each lies in its file, in bytes.
    """

    files: Files
    ends: NDArray[np.int64]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, part: slice) -> "Records":
        start, stop, _ = part.indices(len(self))
        return replace(self, start=self.start + start, stop=self.start + max(start, stop))

    def read(self, i: int) -> bytes:
        """Return the data of record i. Raise UserError for a file that has changed since.

        Raise Unavailable if it cannot be read any more.
        """
        if not 0 <= i < len(self):
            raise IndexError(f"record {i} of {len(self)}")
        i += self.start
        file, length = int(np.searchsorted(self.ends, i, side="right")), int(self.lengths[i])
        try:
            data = self.files.read(file, length, int(self.offsets[i]))
        except OSError as error:
            raise Unavailable(
                f"A prepared data file must be there to the end. Received: {self.files.paths[file]}"
                f": {error}. Repeat the command when it can be read."
            ) from error
        if len(data) < length:
            raise _damage_error(
                self.files.paths[file], f"{len(data)} of {length} bytes of a record"
            )
        return data

    @property
    def digest(self) -> str:
        """Return eight hexadecimal digits of the files' names and the records' lengths."""
        names = json.dumps([path.name for path in self.files.paths])
        content = hashlib.sha256(f"{names}{self.start}".encode())
        content.update(self.lengths[self.start : self.stop].data)
        return content.hexdigest()[:8]


def prepared_records(builder: Any, split: str) -> Records:
    """Return the records of a prepared split; their index is kept beside them.

    Raise UserError for damaged files and for a format other than TFRecord.
    """
    info, folder = builder.info, Path(builder.data_path)
    if info.file_format.value != "tfrecord":
        raise UserError(
            f"Photographs must be prepared in the tfrecord format. Received: {folder} in the "
            f"{info.file_format.value} format. Remove the folder and prepare the data set anew."
        )
    paths = [Path(file) for file in info.splits[split].filepaths]
    counts = info.splits[split].shard_lengths
    return index(paths, counts, folder / f"{builder.name}-{split}.index.npz")


def index(paths: Sequence[Path], counts: Sequence[int], cache: Path) -> Records:
    """Return all records of the files, `counts` in each; keep the lengths in the file `cache`.

    The cache counts as long as the names, sizes and times of the files stay as they were; where it
    cannot be written, the index is made anew each time. Raise UserError for a damaged file.
    """
    key, lengths = _key(paths, counts), None
    with contextlib.suppress(*DAMAGE_ERRORS), np.load(cache) as stored:
        lengths = np.asarray(stored["lengths"], np.int64) if str(stored["key"]) == key else None
    if lengths is None:
        with ThreadPoolExecutor(THREADS) as pool:
            lengths_by_file = [np.zeros(0, np.int64), *pool.map(_lengths, paths, counts)]
        lengths = np.concatenate(lengths_by_file)
        # a folder may be another user's, a disk full
        with contextlib.suppress(OSError), replace_whole(cache) as half, half.open("wb") as file:
            np.savez(file, key=np.array(key), lengths=lengths)
    ends = np.cumsum(counts, dtype=np.int64)
    sizes = lengths + (HEAD + TAIL)
    before = np.concatenate([[0], np.cumsum(sizes)])  # [n + 1], over all files
    first = np.repeat(before[np.concatenate([[0], ends[:-1]])], counts)
    return Records(Files(paths), ends, before[:-1] - first + HEAD, lengths, 0, len(lengths))


def _key(paths: Sequence[Path], counts: Sequence[int]) -> str:
    """Return the SHA-256 of what an index depends on. Raise UserError if a file is missing."""
    rows = []
    for path, count in zip(paths, counts, strict=True):
        try:
            stat = path.stat()
        except OSError as error:
            raise _damage_error(path, error.strerror or str(error)) from error
        rows.append((path.name, count, stat.st_size, stat.st_mtime_ns))
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _lengths(path: Path, count: int) -> NDArray[np.int64]:
    """Return the bytes of each of the `count` records that fill one file; [n]."""
    offset, heads = 0, list[bytes]()
    try:
        with path.open("rb", buffering=0) as file:
            descriptor, size = file.fileno(), os.fstat(file.fileno()).st_size
            if hasattr(os, "posix_fadvise"):  # Linux: no reading ahead
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            while offset < size and len(heads) < count:
                heads.append(os.pread(descriptor, HEAD, offset).ljust(HEAD, b"\0"))
                offset += int.from_bytes(heads[-1][:8], "little") + HEAD + TAIL
    except OSError as error:
        raise _damage_error(path, error.strerror or str(error)) from error
    table = np.frombuffer(b"".join(heads), np.uint8).reshape(-1, HEAD)
    broken = np.flatnonzero(_masked_crc(table[:, :8]) != table[:, 8:].copy().view("<u4")[:, 0])
    if broken.size:
        raise _damage_error(path, f"record {broken[0]} of {count} does not begin as it must")
    if (len(heads), offset) != (count, size):
        raise _damage_error(
            path, f"{len(heads)} of {count} records in {size} bytes, {offset} expected"
        )
    return table[:, :8].copy().view("<i8")[:, 0].astype(np.int64)


def _masked_crc(data: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return the masked CRC-32C of each row [n, b], as TFRecord stores it; [n]."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1)
    crc = np.full(len(data), 0xFFFFFFFF, np.uint32)
    for column in data.T:
        crc = table[(crc ^ column) & 0xFF] ^ (crc >> 8)
    crc = ~crc
    return np.asarray(((crc >> 15) | (crc << 17)) + np.uint32(0xA282EAD8), np.uint32)


def _damage_error(path: Path, found: str) -> UserError:
    return UserError(
        f"A prepared data file must be whole. Received: {path}: {found}. Copy the file again, or "
        "remove its folder and prepare the data set anew."
    )
