"""Damaged and hostile files are refused whole, and none is left half written."""

import copy
import io
import itertools
import json
import os
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

from pipelines import (
    bundle,
    bundle_format,
    bundle_shape,
    store,
)
from pipelines.errors import Unavailable, UserError
from tests.bundles import all_runs, exported, pictures, tracked
from tests.conftest import Go, command, exit_code

Members = dict[str, bytes]
FIRST = "0" * 31 + "1"


def small(home: Path) -> None:
    """A store with one run of one small artifact and one metric."""
    with tracked("small") as run:
        run.text("hello", "hello.txt")
        run.log({"loss": 1.0})


def repacked(file: Path, change: Callable[[Members, dict[str, Any]], None]) -> None:
    """Change members and manifest; sizes and digests are made right before."""
    with zipfile.ZipFile(file) as zipped:
        members = {name: zipped.read(name) for name in zipped.namelist()}
    manifest = json.loads(members.pop("manifest.json"))
    change(members, manifest)
    members.setdefault("manifest.json", json.dumps(manifest).encode())
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, content in members.items():
            zipped.writestr(name, content)


def listed(members: Members, manifest: dict[str, Any], name: str, content: bytes) -> None:
    import hashlib

    digest = hashlib.sha256(content).hexdigest()
    members[name] = content
    manifest["members"][name] = {"bytes": len(content), "sha256": digest}


def named(pattern: str) -> Callable[[Path], None]:
    """A further artifact of a strange name, {} being the folder of artifacts."""

    def harm(file: Path) -> None:
        def change(members: Members, manifest: dict[str, Any]) -> None:
            folder = f"runs/{manifest['runs'][0]['run_id']}/artifacts"
            listed(members, manifest, pattern.format(folder), b"evil")

        repacked(file, change)

    return harm


def in_run(**changes: Any) -> Callable[[Path], None]:
    """Other values in the run's document, which the manifest lists as they are."""

    def harm(file: Path) -> None:
        def change(members: Members, manifest: dict[str, Any]) -> None:
            name = f"runs/{manifest['runs'][0]['run_id']}.json"
            document = json.loads(members[name]) | changes
            document = {key: value for key, value in document.items() if value is not ...}
            for key in manifest["runs"][0].keys() & changes.keys():
                manifest["runs"][0][key] = changes[key]
            listed(members, manifest, name, json.dumps(document).encode())

        repacked(file, change)

    return harm


def in_text(old: str, new: str) -> Callable[[Path], None]:
    """Another text of the run's document."""

    def harm(file: Path) -> None:
        def change(members: Members, manifest: dict[str, Any]) -> None:
            name = f"runs/{manifest['runs'][0]['run_id']}.json"
            text = json.dumps(json.loads(members[name]))
            assert old in text
            listed(members, manifest, name, text.replace(old, new).encode())

        repacked(file, change)

    return harm


def in_manifest(**changes: Any) -> Callable[[Path], None]:
    return lambda file: repacked(file, lambda members, manifest: manifest.update(changes))


def raw(change: Callable[[zipfile.ZipFile, list[zipfile.ZipInfo]], None]) -> Callable[[Path], None]:
    """An archive of the same members, into which `change` writes more."""

    def harm(file: Path) -> None:
        old = zipfile.ZipFile(io.BytesIO(file.read_bytes()))
        with zipfile.ZipFile(file, "w") as zipped:
            for info in old.infolist():
                zipped.writestr(info.filename, old.read(info))
            change(zipped, old.infolist())

    return harm


def twice(zipped: zipfile.ZipFile, infos: list[zipfile.ZipInfo]) -> None:
    with pytest.warns(UserWarning, match="Duplicate"):
        zipped.writestr(infos[0].filename, b"other")


def symlink(file: Path) -> None:
    old = zipfile.ZipFile(io.BytesIO(file.read_bytes()))
    with zipfile.ZipFile(file, "w") as zipped:
        for info in old.infolist():
            new = zipfile.ZipInfo(info.filename)
            link = info.filename.endswith("hello.txt")
            new.external_attr = ((stat.S_IFLNK if link else stat.S_IFREG) | 0o777) << 16
            zipped.writestr(new, old.read(info))


def flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)


def flipped_stored(file: Path) -> None:
    """A byte changed where ZIP itself cannot see it: its own check sum is changed too."""

    def change(members: Members, manifest: dict[str, Any]) -> None:
        [name] = [name for name in members if name.endswith("hello.txt")]
        members[name] = b"hellO"

    repacked(file, change)


def lying(file: Path) -> None:
    def change(members: Members, manifest: dict[str, Any]) -> None:
        [name] = [name for name in members if name.endswith("hello.txt")]
        manifest["members"][name]["bytes"] = 6

    repacked(file, change)


def header_lies(file: Path) -> None:
    """The archive's own directory says that a member is a terabyte."""
    content = file.read_bytes()
    at = content.rindex(b"PK\x01\x02")
    file.write_bytes(content[: at + 24] + b"\xf0\xff\xff\xff" + content[at + 28 :])


def dropped(suffix: str) -> Callable[[Path], None]:
    def change(members: Members, manifest: dict[str, Any]) -> None:
        for name in [name for name in members if name.endswith(suffix)]:
            del members[name]

    return lambda file: repacked(file, change)


def encrypted(file: Path) -> None:
    content = bytearray(file.read_bytes())
    for mark, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        content[content.index(mark) + offset] |= 1
    file.write_bytes(content)


def without_manifest(file: Path) -> None:
    old = zipfile.ZipFile(io.BytesIO(file.read_bytes()))
    with zipfile.ZipFile(file, "w") as zipped:
        for info in old.infolist()[:-1]:
            zipped.writestr(info.filename, old.read(info))


def no_json(members: Members, manifest: dict[str, Any]) -> None:
    members["manifest.json"] = b"{"


def deep_json(members: Members, manifest: dict[str, Any]) -> None:
    members["manifest.json"] = b"[" * 100_000


def no_object(members: Members, manifest: dict[str, Any]) -> None:
    members["manifest.json"] = b"[]"


def unknown_model(file: Path) -> None:
    def change(members: Members, manifest: dict[str, Any]) -> None:
        run_id = manifest["runs"][0]["run_id"]
        listed(members, manifest, f"runs/{run_id}/models/m-{FIRST}/MLmodel", b"")

    repacked(file, change)


def zeros(file: Path) -> None:
    """Two artifacts of 40 MB that pack into 80 kB."""

    def change(members: Members, manifest: dict[str, Any]) -> None:
        folder = f"runs/{manifest['runs'][0]['run_id']}/artifacts"
        for name in "ab":
            listed(members, manifest, f"{folder}/{name}", bytes(40_000_000))

    repacked(file, change)


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


def many_values(members: Members, manifest: dict[str, Any]) -> None:
    members["manifest.json"] = b"[" + 5_000_000 * b"[]," + b"0]"


def long_json(members: Members, manifest: dict[str, Any]) -> None:
    members["manifest.json"] = b'"' + bytes(bundle_format.MEMORY // 14)


def model_among_artifacts(file: Path) -> None:
    named("{}/odd/mlMODEL")(file)


def nul(file: Path) -> None:
    named("{}/hello?txt")(file)
    file.write_bytes(file.read_bytes().replace(b"hello?txt", b"hello\0txt"))


HARMS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "absolute": (named("/etc/{}"), "must be relative"),
    "absolute inside": (named("{}//etc/passwd"), "nothing between"),
    "up": (named("{}/../../x"), r"must not have \.\."),
    "up, quoted": (named("{}/%252e%252e/x"), r"must not have \.\."),
    "here": (named("{}/./x"), r"must not have \.\."),
    "folder": (named("{}/x/"), "nothing between"),
    "backslash": (named("{}/..\\x"), "backslash"),
    "drive": (named("C:/{}"), "drive letter"),
    "drive inside": (named("{}/C:x"), "drive letter"),
    "control character": (named("{}/a\nb"), "control character"),
    "long": (named("{}/" + 256 * "x"), "must be short"),
    "file and folder": (named("{}/hello.txt/x"), "folder too"),
    "nobody's": (named("runs/" + FIRST + "/artifacts/x"), "belong to a run"),
    "no place": (named("x{}"), "belong to a run"),
    "of no model": (named("{}/../models/m-" + FIRST + "/x"), "must not"),
    "unknown model": (unknown_model, "belong to a run"),
    "nul": (nul, "control character"),
    "symlink": (symlink, "plain file"),
    "encrypted": (encrypted, "encrypted"),
    "twice": (raw(twice), "there twice"),
    "not listed": (raw(lambda z, _: z.writestr("runs/x", b"")), "list every member"),
    "another packing": (
        raw(lambda z, _: z.writestr("y", b"", zipfile.ZIP_LZMA)),
        "stored or deflated",
    ),
    "missing": (dropped("hello.txt"), "list every member"),
    "no document": (dropped(".json"), "list every member"),
    "no manifest": (without_manifest, "must have a manifest.json"),
    "flipped": (flipped, "must"),
    "flipped and signed": (flipped_stored, "digest"),
    "lying manifest": (lying, "must have 6 bytes"),
    "lying archive": (header_lies, "must"),
    "truncated": (lambda file: file.write_bytes(file.read_bytes()[:-30]), "whole ZIP archive"),
    "half": (lambda file: file.write_bytes(file.read_bytes()[:500]), "whole ZIP archive"),
    "empty": (lambda file: file.write_bytes(b""), "whole ZIP archive"),
    "no zip": (lambda file: file.write_text("hello"), "whole ZIP archive"),
    "not there": (lambda file: file.unlink(), "can be read"),
    "a folder": (lambda file: (file.unlink(), file.mkdir()), "can be read"),
    "another version": (in_manifest(version=2), "of version 1. Received: 2"),
    "no version": (in_manifest(version=None), "of version 1. Received: None"),
    "no list": (in_manifest(members=[]), "keys and types"),
    "more keys": (in_manifest(more=1), "keys and types"),
    "another experiment": (in_manifest(experiments={"1": "x"}), "experiments of its runs"),
    "no json": (lambda file: repacked(file, no_json), "must be JSON"),
    "deep json": (lambda file: repacked(file, deep_json), "must be JSON"),
    "many values": (lambda file: repacked(file, many_values), "at most 1024 MiB"),
    "long json": (lambda file: repacked(file, long_json), "100 times the file"),
    "zeros": (zeros, r"100 times the file. Received: [\d,]+ bytes, 80,\d+,\d+ unpacked"),
    "one content": (one_content, "100 times the file"),
    "model among artifacts": (model_among_artifacts, "MLflow would load as one"),
    "no object": (lambda file: repacked(file, no_object), "must be a JSON object"),
    "another run": (in_run(run_id=FIRST), "once, with its document"),
    "bad id": (in_run(run_id="../../x"), "keys and types"),
    "no name": (in_run(end_ms=...), "keys and types"),
    "another name": (in_run(tags={"kind": "other"}), "as the manifest says"),
    "bad status": (in_run(status="RUNNING"), "keys and types"),
    "bad time": (in_run(start_ms="1"), "keys and types"),
    "no start": (in_run(start_ms=0), "start_ms = 0"),
    "no end": (in_run(end_ms=0), "end_ms = 0"),
    "bad parameter": (in_run(params={"a": 1}), "keys and types"),
    "bad parameter name": (in_run(params={"../a": "1"}), "that MLflow takes"),
    "nul in a text": (in_run(params={"a": "\0"}), "keys and types"),
    "half a character": (in_run(params={"a": "\ud800"}), "must be JSON"),
    "bad point": (in_run(metrics={"loss": [[0, 0, "x"]]}), "keys and types"),
    "too large": (in_text('"metrics": {', '"metrics": {"a": [[0, 0, 1e999]], '), "must be JSON"),
    "infinite": (in_run(metrics={"loss": [[0, 0, float("inf")]]}), "must be JSON"),
    "half a name": (in_text('"loss"', '"loss\\uDFFF"'), "must be JSON"),
    "not a number": (in_run(metrics={"loss": [[0, 0, float("nan")]]}), "must be JSON"),
    "no curve": (in_run(metrics={"loss": {}}), "keys and types"),
    "short point": (in_run(metrics={"loss": [[0, 0]]}), "keys and types"),
    "huge step": (in_run(metrics={"loss": [[2**63, 0, 1.0]]}), "keys and types"),
    "bad metric name": (in_run(metrics={"a,b": []}), "that MLflow takes"),
    "bad data set": (in_run(datasets=[{}]), "keys and types"),
    "bad model": (in_run(models=[{"model_id": "m-1"}]), "keys and types"),
}  # fmt: skip


def tree(folder: Path) -> dict[str, bytes]:
    """All files below a folder but the database's and the locks, which any command writes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "mlflow.db" not in path.name and path.suffix != ".lock"
    }


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_or_hostile_file_is_refused_whole(
    harm: str, home: Path, go: Go, tmp_path: Path
) -> None:
    small(home)
    exported(tmp_path / "runs.zip")
    work, says = HARMS[harm]
    work(tmp_path / "runs.zip")
    go("b")
    experiments = len(store.client().search_experiments())
    before = {path: each for path, each in tree(tmp_path).items() if path != "runs.zip"}
    with pytest.raises(UserError, match=says) as caught:
        bundle.import_runs(tmp_path / "runs.zip")
    assert "\n" not in str(caught.value)
    assert "Received: " in str(caught.value)
    assert all_runs() == []
    assert len(store.client().search_experiments()) == experiments
    assert {path: each for path, each in tree(tmp_path).items() if path != "runs.zip"} == before


def test_a_point_is_taken_where_its_shape_is() -> None:
    odd = [0, -1, 2**63 - 1, 2**63, 1 - 2**63, -(2**63), 1.5, True, False, None, "0", [0]]
    shape = (bundle_shape.integer, bundle_shape.count, bundle_shape.number)
    points = [list(each) for n in range(5) for each in itertools.product(odd, repeat=n)]
    for point in [*odd, *points, {}, (0, 0, 0)]:
        assert bundle_shape._point(point) == (not bundle_shape._mismatch(point, shape, "")), point


def test_any_flipped_byte_is_refused_or_changes_nothing(home: Path, go: Go, tmp_path: Path) -> None:
    small(home)
    file = tmp_path / "runs.zip"
    exported(file)
    good, before = file.read_bytes(), pictures()
    rng = np.random.default_rng(0)
    for number, at in enumerate(rng.choice(len(good), 60, replace=False)):
        content = bytearray(good)
        content[at] ^= 1 << rng.integers(8)
        file.write_bytes(content)
        if refuses(file):
            continue
        go(f"flipped {number}")
        bundle.import_runs(file)
        assert pictures() == before


def refuses(file: Path) -> bool:
    try:
        with bundle_format.opened(file, file.parent, lambda document: None):
            return False
    except UserError:
        return True


def test_a_file_larger_than_the_disk_is_refused(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(home)
    exported(tmp_path / "runs.zip")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 0, 9))
    with pytest.raises(
        Unavailable, match=r"room for all its files. Received: [\d,]+ bytes, and 9 free"
    ):
        bundle.import_runs(tmp_path / "runs.zip")


@pytest.mark.parametrize("place", ["nowhere/runs.zip", "mlruns"])
def test_a_place_that_cannot_be_written_is_said(home: Path, tmp_path: Path, place: str) -> None:
    small(home)
    with pytest.raises(UserError, match=f"file in a folder that can be written.*{place}"):
        bundle.export_runs(tmp_path / place, [], None)
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
            bundle.export_runs(file, [], None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert file.read_text() == "before"
    assert [path for path in tmp_path.iterdir() if path.is_file()] == [file]
    exported(file)
    assert zipfile.is_zipfile(file)


DOCUMENTS: dict[str, Callable[[int], str]] = {  # of about n characters
    "curve": lambda n: ",".join(f"[{i},1795430651234,0.{9**18 + i}]" for i in range(n // 40)),
    "lists": lambda n: ",".join(n // 3 * ["[]"]),
    "deep lists": lambda n: ",".join(n // 17 * ["[[[[[[[[]]]]]]]]"]),
    "dicts": lambda n: ",".join(n // 8 * ['{"a":0}']),
    "numbers": lambda n: ",".join(n // 4 * ["1e9"]),
    "params": lambda n: "{" + ",".join(f'"{i:x}":"{i:x}"' for i in range(n // 14)) + "}",
    "wide": lambda n: '"\U0001f600' + n * "a" + '"',
    "wide texts": lambda n: ",".join(n // 5 * ['"\u0100"']),
    "wide keys": lambda n: "{" + ",".join(f'"\U0001f600{i:x}":0' for i in range(n // 13)) + "}",
    "wide lists": lambda n: '"\U0001f600",' + ",".join(n // 17 * ["[[[[[[[[]]]]]]]]"]),
}
PEAK = """
import json, re, sys
from pathlib import Path
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10
before = peak()
found = json.loads(Path(sys.argv[1]).read_bytes())
json.dumps(found, ensure_ascii=False).encode()
print(peak() - before)
"""


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_no_document_takes_more_memory_than_it_is_taken_for(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "document.json"
    file.write_text(f"[{DOCUMENTS[kind](4 << 20)}]")
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(file)], capture_output=True, text=True, check=True
    )
    assert 4 << 20 < int(done.stdout) < bundle_format._memory(file.read_bytes())


def test_the_longest_training_fits_and_one_document_too_large_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    curve = [[i, 1_795_430_651_234 + i, 1 / (i + 3)] for i in range(64_000)]
    with bundle_format.written(tmp_path / "runs.zip") as archive:
        archive.json("runs/x.json", {"metrics": {f"metric {n}": curve for n in range(6)}})
    monkeypatch.setattr(bundle_format, "MEMORY", 1 << 24)
    with (
        pytest.raises(
            UserError, match=r"at most 16 MiB. Received: runs/x.json, [0-9,]+ bytes. Lea"
        ),
        bundle_format.written(tmp_path / "2.zip") as archive,
    ):
        archive.json("runs/x.json", {"metrics": {"metric": curve}})
    assert [path.name for path in tmp_path.iterdir()] == ["runs.zip"]


def test_what_packs_too_well_to_be_imported_is_not_exported(home: Path, tmp_path: Path) -> None:
    with tracked("zeros") as run:
        run.text(70_000_000 * "0", "zeros.txt")
    with pytest.raises(UserError, match=r"100 times larger unpacked.*70,[0-9,]+ unpacked"):
        bundle.export_runs(tmp_path / "runs.zip", [], None)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []


def die_while_exporting(file: Path) -> None:
    bundle_format.Writer.file = lambda self, name, path: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
    bundle.export_runs(file, [], None)


def test_the_next_export_deletes_what_a_killed_one_left_and_no_other(
    home: Path, tmp_path: Path
) -> None:
    small(home)
    assert exit_code(die_while_exporting, tmp_path / "killed.zip") == -signal.SIGKILL
    [half] = [path.name for path in tmp_path.iterdir() if path.is_file()]
    assert half.startswith(".killed.zip.")
    with bundle_format._half(tmp_path / "other.zip") as other:
        exported(tmp_path / "runs.zip")
        left = {path.name for path in tmp_path.iterdir() if path.is_file()}
        assert left == {"runs.zip", Path(other.name).name}
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["runs.zip"]


@pytest.mark.slow
def test_the_commands(home: Path, go: Go, tmp_path: Path) -> None:
    small(home)
    file = str(tmp_path / "runs.zip")
    done = command("pipelines", "export", file, "--json")
    assert (done.returncode, len(json.loads(done.stdout)["runs"])) == (0, 1)
    go("b")
    done = command("pipelines", "import", file)
    assert done.stdout.startswith("1 runs imported, 0 ")
    done = command("pipelines", "import", str(tmp_path / "none.zip"))
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
