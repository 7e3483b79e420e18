"""Damaged and hostile files are refused whole, and none is left half written."""

import copy
import hashlib
import io
import json
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.errors import Unavailable, UserError
from pipelines.tracking import history, store
from pipelines.tracking.bundles import exporting, file_format, importing
from pipelines.tracking.bundles.shape import Document, validate
from tests.conftest import Go, command, exit_code
from tests.tracking.bundles import all_runs, exported, pictures, tracked

FIRST = "0" * 31 + "1"
Harm = Callable[[Path], Any]
Members = dict[str, bytes]


def small(home: Path) -> None:
    """Record one run of one small artifact and one metric."""
    with tracked("small") as run:
        run.text("hello", "hello.txt")
        run.log({"loss": 1.0})


def listed(members: Members, manifest: dict[str, Any], name: str, content: bytes) -> None:
    """Put a member into an archive, as its manifest lists it."""
    members[name] = content
    digest = hashlib.sha256(content).hexdigest()
    manifest["members"][name] = {"bytes": len(content), "sha256": digest}


def harm_members(change: Callable[[Members, dict[str, Any], str], None]) -> Harm:
    """Change the members, the manifest and, by its id, the run; the manifest is written last."""

    def harm(file: Path) -> None:
        with zipfile.ZipFile(file) as zipped:
            members = {name: zipped.read(name) for name in zipped.namelist()}
        manifest = json.loads(members.pop("manifest.json"))
        change(members, manifest, manifest["runs"][0]["run_id"])
        members.setdefault("manifest.json", json.dumps(manifest).encode())
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name, content in members.items():
                zipped.writestr(name, content)

    return harm


def added(pattern: str, content: bytes = b"evil") -> Harm:
    """Add members of these names, {} being the run's folder, as the manifest lists them."""

    def change(members: Members, manifest: dict[str, Any], run_id: str) -> None:
        for name in pattern.format(f"runs/{run_id}").split(" "):
            listed(members, manifest, name, content)

    return harm_members(change)


def in_run(old: str = "", new: str = "", **changes: Any) -> Harm:
    """Put other values, or another text, into the run's document, as the manifest lists it."""

    def change(members: Members, manifest: dict[str, Any], run_id: str) -> None:
        name = f"runs/{run_id}.json"
        document = json.loads(members[name]) | changes
        text = json.dumps({key: value for key, value in document.items() if value is not ...})
        assert old in text
        manifest["runs"][0] |= {k: v for k, v in changes.items() if k in manifest["runs"][0]}
        listed(members, manifest, name, text.replace(old, new).encode())

    return harm_members(change)


def in_manifest(**changes: Any) -> Harm:
    return harm_members(lambda members, manifest, run_id: manifest.update(changes))


def manifest_is(content: bytes) -> Harm:
    return harm_members(lambda members, _, run_id: members.update({"manifest.json": content}))


def hello(content: bytes | None, size: int = 5) -> Harm:
    """Another content of the artifact (None: it is away), or another size by the manifest."""

    def change(members: Members, manifest: dict[str, Any], run_id: str) -> None:
        name = f"runs/{run_id}/artifacts/hello.txt"
        manifest["members"][name]["bytes"] = size
        members[name] = content or b""
        if content is None:
            del members[name]

    return harm_members(change)


def zipped_anew(write: Callable[[zipfile.ZipFile, zipfile.ZipInfo, bytes], Any]) -> Harm:
    """Write the members of an archive into another, each as `write` does."""

    def harm(file: Path) -> None:
        old = zipfile.ZipFile(io.BytesIO(file.read_bytes()))
        with zipfile.ZipFile(file, "w") as zipped:
            for info in old.infolist():
                write(zipped, zipfile.ZipInfo(info.filename), old.read(info))

    return harm


def as_link(zipped: zipfile.ZipFile, info: zipfile.ZipInfo, content: bytes) -> None:
    link = info.filename.endswith("hello.txt")
    info.external_attr = ((stat.S_IFLNK if link else stat.S_IFREG) | 0o777) << 16
    zipped.writestr(info, content)


def twice(zipped: zipfile.ZipFile, info: zipfile.ZipInfo, content: bytes) -> None:
    zipped.writestr(info, content)
    with pytest.warns(UserWarning, match="Duplicate"):
        zipped.writestr(info.filename, b"other")


def bytes_of(change: Callable[[bytes], bytes]) -> Harm:
    return lambda file: file.write_bytes(change(file.read_bytes()))


def flipped(content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as zipped:
        largest = max(zipped.infolist(), key=lambda each: each.compress_size)
    at = largest.header_offset + 30 + len(largest.filename) + largest.compress_size // 2
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def encrypted(content: bytes) -> bytes:
    """Say of the first member, in its head and in the directory, that it is encrypted."""
    changed = bytearray(content)
    for mark, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        changed[content.index(mark) + offset] |= 1
    return bytes(changed)


def header_lies(content: bytes) -> bytes:
    """Say in the archive's own directory that a member has four gigabytes."""
    at = content.rindex(b"PK\x01\x02")
    return content[: at + 24] + b"\xf0\xff\xff\xff" + content[at + 28 :]


def one_content(file: Path) -> None:
    """Ten members of the archive whose content is the same bytes of the file, by its directory."""
    content = file.read_bytes()
    with zipfile.ZipFile(file) as zipped:
        infos, start = zipped.infolist(), zipped.start_dir
    for info in infos:
        info.file_size, info.compress_size = 1 << 24, 40
    with file.open("wb") as raw, zipfile.ZipFile(raw, "w") as zipped:
        raw.write(content[:start])
        zipped.start_dir, zipped._didModify = start, True
        zipped.filelist = infos
        for number in range(10):
            info = copy.copy(infos[0])
            info.filename = f"{info.filename}{number}"
            zipped.filelist.append(info)


def nul(file: Path) -> None:
    added("{}/artifacts/hello?txt")(file)
    file.write_bytes(file.read_bytes().replace(b"hello?txt", b"hello\0txt"))


LONG = b'"' + bytes(file_format.MEMORY // 14)
SHAPE = "keys and types"
HARMS: dict[str, tuple[Harm, str]] = {
    "absolute": (added("/etc/{}"), "must be relative"),
    "absolute inside": (added("{}/artifacts//etc/passwd"), "nothing between"),
    "up": (added("{}/artifacts/../../x"), r"must not have \.\."),
    "up, quoted": (added("{}/artifacts/%252e%252e/x"), r"must not have \.\."),
    "here": (added("{}/artifacts/./x"), r"must not have \.\."),
    "folder": (added("{}/artifacts/x/"), "nothing between"),
    "backslash": (added("{}/artifacts/..\\x"), "backslash"),
    "drive": (added("C:/{}"), "drive letter"),
    "drive inside": (added("{}/artifacts/C:x"), "drive letter"),
    "control character": (added("{}/artifacts/a\nb"), "control character"),
    "nul": (nul, "control character"),
    "long": (added("{}/artifacts/" + 256 * "x"), "must be short"),
    "file and folder": (added("{}/artifacts/hello.txt/x"), "folder too"),
    "nobody's": (added(f"runs/{FIRST}/artifacts/x"), "belong to a run"),
    "no place": (added("x{}"), "belong to a run"),
    "unknown model": (added("{}/models/m-" + FIRST + "/MLmodel", b""), "belong to a run"),
    "model among artifacts": (added("{}/artifacts/odd/mlMODEL"), "MLflow would load as one"),
    "zeros": (
        added("{0}/artifacts/a {0}/artifacts/b", bytes(40_000_000)),
        r"100 times the file. Received: [\d,]+ bytes, 80,\d+,\d+ unpacked",
    ),
    "one content": (one_content, "100 times the file"),
    "symlink": (zipped_anew(as_link), "plain file"),
    "twice": (zipped_anew(twice), "there twice"),
    "encrypted": (bytes_of(encrypted), "whole ZIP archive"),
    "flipped": (bytes_of(flipped), "must"),
    "lying archive": (bytes_of(header_lies), "must"),
    "truncated": (bytes_of(lambda content: content[:-30]), "whole ZIP archive"),
    "empty": (bytes_of(lambda content: b""), "whole ZIP archive"),
    "not there": (lambda file: file.unlink(), "can be read"),
    "a folder": (lambda file: (file.unlink(), file.mkdir()), "can be read"),
    "not listed": (harm_members(lambda members, *_: members.update(x=b"")), "list every member"),
    "missing": (hello(None), "list every member"),
    "changed": (hello(b"hellO"), "digest"),
    "lying manifest": (hello(b"hello", size=6), "must have 6 bytes"),
    "no manifest": (zipped_anew(lambda z, i, c: i.filename[0] == "r" and z.writestr(i, c)),
                    "must have a manifest.json"),
    "no json": (manifest_is(b"{"), "must be JSON"),
    "deep json": (manifest_is(b"[" * 100_000), "must be JSON"),
    "no object": (manifest_is(b"[]"), "must be a JSON object"),
    "many values": (manifest_is(b"[" + 5_000_000 * b"[]," + b"0]"), "at most 1024 MiB"),
    "long json": (manifest_is(LONG), "100 times the file"),
    "another version": (in_manifest(version=2), "of version 1. Received: 2"),
    "no version": (in_manifest(version=None), "of version 1. Received: None"),
    "no list": (in_manifest(members=[]), r"Received: manifest.json members = \[\]\."),
    "more keys": (in_manifest(more=1), SHAPE),
    "another experiment": (in_manifest(experiments={"1": "x"}), "experiments of its runs"),
    "another run": (in_run(run_id=FIRST), "once, with its document"),
    "another name": (in_run(tags={"kind": "other"}), "as the manifest says"),
    "bad parameter name": (in_run(params={"../a": "1"}), "that MLflow takes"),
    "bad metric name": (in_run(metrics={"a,b": []}), "that MLflow takes"),
    "bad id": (in_run(run_id="../../x"), SHAPE),
    "no end": (in_run(end_ms=...), r"json end_ms is missing\."),
    "another key": (in_run('"end_ms"', '"until"'), SHAPE),
    "bad status": (in_run(status="RUNNING"), SHAPE),
    "bad start": (in_run(start_ms="1"), "start_ms = '1'"),
    "start at 0": (in_run(start_ms=0), "start_ms = 0"),
    "end at 0": (in_run(end_ms=0), "end_ms = 0"),
    "bad parameter": (in_run(params={"a": 1}), "params a = 1"),
    "nul in a text": (in_run(params={"a": "\0"}), SHAPE),
    "half a character": (in_run(params={"a": "\ud800"}), SHAPE),
    "half a name": (in_run('"loss"', '"loss\\uDFFF"'), SHAPE),
    "too large": (in_run('"metrics": {', '"metrics": {"a": [[0, 0, 1e999]], '), SHAPE),
    "not a number": (in_run(metrics={"loss": [[0, 0, float("nan")]]}), "loss 0 2 = nan"),
    "no curve": (in_run(metrics={"loss": {}}), SHAPE),
    "bad data set": (in_run(datasets=[{}]), "datasets 0 name is missing"),
    "bad model": (in_run(models=[{"model_id": "m-1"}]), SHAPE),
}  # fmt: skip


@pytest.fixture
def file(home: Path, tmp_path: Path) -> Path:
    """The small run, exported."""
    small(home)
    exported(tmp_path / "runs.zip")
    return tmp_path / "runs.zip"


def tree(folder: Path) -> dict[str, bytes]:
    """All files below a folder but the export, the database's and the locks."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
        and not ("mlflow.db" in path.name or path.suffix == ".lock" or path.name == "runs.zip")
    }


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_or_hostile_file_is_refused_whole(
    harm: str, file: Path, go: Go, tmp_path: Path
) -> None:
    work, says = HARMS[harm]
    work(file)
    go("b")
    experiments = len(store.client().search_experiments())
    before = tree(tmp_path)
    with pytest.raises(UserError, match=says) as caught:
        importing.import_runs(file)
    assert re.fullmatch("[^\n]+ Received: [^\n]+", str(caught.value))
    assert all_runs() == []
    assert len(store.client().search_experiments()) == experiments
    assert tree(tmp_path) == before


POINTS = {  # step, milliseconds since 1970, value: whether it is taken
    **dict.fromkeys(["0, 0, 1", "-1, 5, 0.5", "0, 0, null", "9223372036854775807, 0, 1"], True),
    **dict.fromkeys(["0, 0", "0, 0, 0, 0", "", "0, -1, 0", "9223372036854775808, 0, 0"], False),
    **dict.fromkeys(["1.5, 0, 0", "true, 0, 0", "0, true, 0", "0, 0, true", "0, 0, [0]"], False),
    **dict.fromkeys(["null, 0, 0", '"0", 0, 0', '0, 0, "0"', "0, 0, 1e999", "0, 0, NaN"], False),
}  # fmt: skip


def bare(**changes: Any) -> dict[str, Any]:
    """The document of a run that has nothing."""
    ids = {"run_id": FIRST, "name": "r", "experiment": "e", "status": "FINISHED"}
    nothing = {"params": {}, "tags": {}, "metrics": {}, "datasets": [], "models": []}
    return {**ids, "start_ms": 1, "end_ms": None, **nothing, **changes}


def test_a_result_without_the_tags_that_are_read_of_it_is_refused() -> None:
    keys = (*history.NEEDED["claim"], *history.JUDGED)
    tags = {"kind": "claim"} | dict.fromkeys(keys, "1")
    importing.check_document(validate(Document, bare(tags=tags), "x"))
    for key in keys:
        without = {k: v for k, v in tags.items() if k != key}
        with pytest.raises(UserError, match=f"must have its tags. Received: run .* without {key}"):
            importing.check_document(validate(Document, bare(tags=without), "x"))


@pytest.mark.parametrize("point", POINTS)
def test_a_point_is_taken_where_its_shape_is(point: str) -> None:
    document = bare(metrics={"loss": json.loads(f"[[{point}]]")})
    if POINTS[point]:
        assert len(validate(Document, document, "x").metrics["loss"][0]) == 3
    else:
        with pytest.raises(UserError, match="metrics loss 0"):
            validate(Document, document, "x")


@pytest.mark.parametrize(
    "wrong",
    [
        {"metrics": {"loss": 10**6 * [[]]}},
        {"params": dict.fromkeys(map(str, range(10**6)), 0)},
        dict.fromkeys(map(str, range(10**6)), 0),
    ],
)
def test_a_million_mistakes_take_no_longer_than_one(wrong: dict[str, Any]) -> None:
    from pydantic import ValidationError

    with pytest.raises(UserError) as caught:
        validate(Document, bare(**wrong), "x")
    assert isinstance(caught.value.__cause__, ValidationError)
    assert caught.value.__cause__.error_count() < 5


def test_any_flipped_byte_is_refused_or_changes_nothing(file: Path, go: Go) -> None:
    good, before = file.read_bytes(), pictures()
    rng = np.random.default_rng(0)
    for number, at in enumerate(rng.choice(len(good), 60, replace=False)):
        content = bytearray(good)
        content[at] ^= 1 << rng.integers(8)
        file.write_bytes(content)
        if refuses(file):
            continue
        go(f"flipped {number}")
        importing.import_runs(file)
        assert pictures() == before


def refuses(file: Path) -> bool:
    try:
        with file_format.open_archive(file, file.parent, lambda document: None):
            return False
    except UserError:
        return True


def test_a_file_larger_than_the_disk_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 0, 9))
    with pytest.raises(Unavailable, match=r"room for all its files. Received: [\d,]+ bytes, and 9"):
        importing.import_runs(file)


@pytest.mark.parametrize("place", ["nowhere/runs.zip", "mlruns"])
def test_a_place_that_cannot_be_written_is_said(home: Path, tmp_path: Path, place: str) -> None:
    small(home)
    with pytest.raises(UserError, match=f"file in a folder that can be written.*{place}"):
        exporting.export_runs(tmp_path / place, [], None)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []


def test_a_full_disk_leaves_the_file_that_was_there(home: Path, tmp_path: Path) -> None:
    small(home)
    with tracked("large") as run:
        for number in range(4):
            run.text(np.random.default_rng(number).bytes(450_000).hex(), f"{number}.txt")
    file = tmp_path / "runs.zip"
    file.write_text("before")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        with pytest.raises(UserError, match="can be written"):
            exporting.export_runs(file, [], None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert file.read_text() == "before"
    assert [path for path in tmp_path.iterdir() if path.is_file()] == [file]


DOCUMENTS: dict[str, Callable[[int], str]] = {  # of about n characters
    "curve": lambda n: ",".join(f"[{i},1795430651234,0.{9**18 + i}]" for i in range(n // 40)),
    "points": lambda n: ",".join(n // 8 * ["[0,0,1]"]),
    "lists": lambda n: ",".join(n // 3 * ["[]"]),
    "deep lists": lambda n: ",".join(n // 17 * ["[[[[[[[[]]]]]]]]"]),
    "dicts": lambda n: ",".join(n // 8 * ['{"a":0}']),
    "wide keys": lambda n: "{" + ",".join(f'"\U0001f600{i:x}":0' for i in range(n // 13)) + "}",
}
PEAK = """
import json, re, sys
from pathlib import Path
from pipelines.tracking.bundles.shape import Document, validate
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10
text = Path(sys.argv[1]).read_bytes()
before = peak()
try:
    found = validate(Document, json.loads(text), "x")
except Exception as error:
    assert "metrics" in str(error), error
print(peak() - before)
"""


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_no_document_takes_more_memory_than_it_is_taken_for(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "document.json"
    text = json.dumps(bare(metrics={"loss": []}))
    file.write_text(text.replace('"loss": []', f'"loss": [{DOCUMENTS[kind](4 << 20)}]'))
    program = [sys.executable, "-c", PEAK, str(file)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert 4 << 20 < int(done.stdout) < file_format._memory_needed(file.read_bytes())


def test_the_longest_training_fits_and_one_document_too_large_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    curve = [[i, 1_795_430_651_234 + i, 1 / (i + 3)] for i in range(64_000)]
    with file_format.create_archive(tmp_path / "runs.zip") as archive:
        archive.json("runs/x.json", {"metrics": {f"metric {n}": curve for n in range(6)}})
    monkeypatch.setattr(file_format, "MEMORY", 1 << 24)
    with (
        pytest.raises(UserError, match=r"at most 16 MiB. Received: runs/x.json, [0-9,]+ bytes. L"),
        file_format.create_archive(tmp_path / "2.zip") as archive,
    ):
        archive.json("runs/x.json", {"metrics": {"metric": curve}})
    assert [path.name for path in tmp_path.iterdir()] == ["runs.zip"]


def test_what_packs_too_well_to_be_imported_is_not_exported(home: Path, tmp_path: Path) -> None:
    with tracked("zeros") as run:
        run.text(70_000_000 * "0", "zeros.txt")
    with pytest.raises(UserError, match=r"at most 100 times the file.*70,[0-9,]+ unpacked"):
        exporting.export_runs(tmp_path / "runs.zip", [], None)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []


def die_while_exporting(file: Path) -> None:
    file_format.Writer.file = lambda self, name, path: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
    exporting.export_runs(file, [], None)


def test_an_export_that_was_killed_is_repeated_and_leaves_nothing_else(
    home: Path, tmp_path: Path
) -> None:
    small(home)
    assert exit_code(die_while_exporting, tmp_path / "runs.zip") == -signal.SIGKILL
    assert not (tmp_path / "runs.zip").exists()
    exported(tmp_path / "runs.zip")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["runs.zip"]


@pytest.mark.slow
def test_the_commands(file: Path, go: Go, tmp_path: Path) -> None:
    done = command("pipelines", "export", str(tmp_path / "more.zip"), "--json")
    assert (done.returncode, len(json.loads(done.stdout)["runs"])) == (0, 1)
    go("b")
    done = command("pipelines", "import", str(file))
    assert done.stdout.startswith("1 runs imported, 0 ")
    done = command("pipelines", "import", str(tmp_path / "none.zip"))
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
