"""Storage of studies: a journal file on one machine, PostgreSQL or a proxy for several."""

import functools
import json
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pipelines.errors import (
    Unavailable,
    UserError,
    disk_error,
    missing_driver,
    short,
    without_password,
)
from pipelines.runtime.files import take_lock, user_path
from pipelines.runtime.provenance import digest
from pipelines.tracking import database, store
from tuning.optuna_log import silence

JOURNAL = "journal:///"
SCHEMES = ("journal", "postgresql", "mysql", "grpc")
CONNECT_S = 5  # time that a server has to answer
PROXY_PORT = 13_000


def resolve_url(url: str | None = None) -> str:
    """Return the URL that is given, else OPTUNA_STORAGE, else that of a journal beside the runs."""
    asked = url or os.environ.get("OPTUNA_STORAGE")
    if not asked:  # one for every tracking server
        store.announce_home()
        is_ours = store.uri().startswith(database.SQLITE)
        suffix = "" if is_ours else f"-{digest(store.uri())}"
        return f"{JOURNAL}{store.home() / f'optuna{suffix}.journal'}"
    if asked.startswith(JOURNAL):
        return f"{JOURNAL}{user_path(asked.removeprefix(JOURNAL)).resolve()}"
    return asked.rstrip("/")


@functools.cache
def connect(url: str) -> Any:
    """Return the Optuna storage at a URL of `resolve_url`; it is made where it is new.

    Raise UserError or Unavailable, within seconds, where none can be had there.
    """
    from optuna.exceptions import OptunaError
    from sqlalchemy.exc import SQLAlchemyError

    _check(url)
    try:
        with silence():
            if url.startswith(JOURNAL):
                return open_journal(Path(url.removeprefix(JOURNAL)))
            return _proxy(url) if _scheme(url) == "grpc" else _database(url)
    except ImportError as error:
        raise missing_driver(url, error) from error
    except (UserError, Unavailable):
        raise
    except (OptunaError, SQLAlchemyError, OSError, RuntimeError, ValueError) as error:
        raise Unavailable(
            f"The storage of studies must be reachable. Received: {without_password(url)}: "
            f"{_reason(error)}. Check --storage or OPTUNA_STORAGE."
        ) from error


def _reason(error: Any) -> str:
    """Return what went wrong in the words of the library that knows most: Optuna says the least."""
    import grpc

    cause = error.__cause__ if type(error).__name__ == "StorageInternalError" else error
    cause = getattr(cause, "orig", None) or cause
    if isinstance(cause, grpc.Call):  # a proxy's error; its own text is a table
        cause = RuntimeError(f"{cause.code().name}: {cause.details()}")
    return short(cause).rstrip(".!")


def _scheme(url: str) -> str:
    return urlsplit(url).scheme.partition("+")[0]


def _check(url: str) -> None:
    """Raise UserError for a URL that names no storage."""
    try:
        parts, scheme = urlsplit(url), _scheme(url)
        is_valid = scheme in SCHEMES and parts.port != 0 and parts.netloc.count("@") < 2
        is_valid = is_valid and bool(parts.hostname or scheme != "grpc")
    except ValueError:  # a port that is no number, half of an IPv6 address
        is_valid = False
    if url.startswith("journal:"):
        is_valid = url.startswith(JOURNAL)
    if not is_valid:
        raise UserError(
            "A storage must be journal:///FILE, postgresql://USER:PASSWORD@HOST/DATABASE, "
            "mysql+pymysql://USER:PASSWORD@HOST/DATABASE (an @ of the password is %40) or "
            f"grpc://HOST:PORT. Received: {without_password(url)}. Set --storage or OPTUNA_STORAGE."
        )


def open_journal(path: Path) -> Any:
    """Return Optuna's journal in a file, which every change of a study makes longer.

    Optuna's private `_log_number_offset` says which line it does not take.
    """
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        journal = JournalStorage(backend := JournalFileBackend(str(path), _FileLock(path)))
        with path.open("rb") as file:
            last = next(iter(deque(file, 1)), b"")
        if last.endswith(b"\n"):  # else somebody writes it now, and Optuna leaves it out
            json.loads(last)
        return journal
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        line = max(backend._log_number_offset) + isinstance(error, json.JSONDecodeError)
        raise UserError(
            "A journal of studies must have an operation of Optuna's in every line. Received: "
            f"{path}, which has none in line {line} that this version knows. Restore a copy of it, "
            "or name another with --storage or OPTUNA_STORAGE."
        ) from error
    except OSError as error:
        raise disk_error(error)(
            f"The file of a storage must be writable. Received: {path}: {error.strerror}. Change "
            "its permissions, or choose another with --storage or OPTUNA_STORAGE."
        ) from error


class _FileLock:
    """Optuna's lock of a journal; the system frees it at once when a process is killed.

    Optuna's own locks are files that stay then, and hold up all others for 30 s.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def acquire(self) -> bool:
        """Wait until no other process writes; cut off a line that a kill or a full disk tore."""
        self.file = self.path.open("r+b")
        take_lock(self.file, self.path, wait=True)
        end = self.file.seek(0, os.SEEK_END)
        self.file.seek(max(0, end - 1))
        if self.file.read() not in (b"", b"\n"):
            self.file.seek(0)
            self.file.truncate(self.file.read().rfind(b"\n") + 1)
        return True

    def release(self) -> None:
        """Let the next process write."""
        self.file.close()


def _database(url: str) -> Any:
    """Return the storage in a database, whose tables are made where there are none."""
    from optuna.storages import RDBStorage

    options = {"pool_pre_ping": True, "connect_args": {"connect_timeout": CONNECT_S}}
    _refuse_others(url, options)
    return RDBStorage(url.replace("{", "{{").replace("}", "}}"), engine_kwargs=options)


def _refuse_others(url: str, options: dict[str, Any]) -> None:
    """Raise UserError for MLflow's database: Optuna would take its versions for its own."""
    import sqlalchemy

    engine = sqlalchemy.create_engine(url, **options)
    try:
        tables = set(sqlalchemy.inspect(engine).get_table_names())
    finally:
        engine.dispose()
    if "alembic_version" in tables and "version_info" not in tables:
        raise UserError(
            f"A storage must be a database of its own. Received: {without_password(url)}, in which "
            f"another program has tables ({', '.join(sorted(tables)[:3])}). Name another with "
            "--storage."
        )


def _proxy(url: str) -> Any:
    """Return Optuna's gRPC proxy, which has answered."""
    import grpc
    from optuna.storages import GrpcStorageProxy

    parts = urlsplit(url)
    proxy = GrpcStorageProxy(host=str(parts.hostname), port=parts.port or PROXY_PORT)
    try:
        proxy.wait_server_ready(CONNECT_S)
        proxy.get_all_studies()
    except grpc.RpcError as error:
        raise RuntimeError(f"no proxy of Optuna's: {_reason(error)}") from error
    return proxy


@contextmanager
def translate_errors(url: str) -> Iterator[None]:
    """Turn the errors of a storage that goes away into one sentence."""
    import grpc
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (optuna.exceptions.StorageInternalError, SQLAlchemyError, grpc.RpcError) as error:
        raise Unavailable(
            f"The study's storage must answer. Received: {without_password(url)}: "
            f"{_reason(error)}. What has been tried is kept: repeat the command when it is back."
        ) from error
