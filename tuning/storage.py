"""Where Optuna's studies are: a database, Optuna's journal file, or its gRPC proxy before these.

SQLite and a journal serve the processes of one machine; PostgreSQL, MySQL and the proxy many.
"""

import functools
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from pipelines import store
from pipelines.errors import Unavailable, UserError, missing_driver, short
from pipelines.recipes import digest
from tuning.database import ANSWER_S, make_folder, opened, quiet
from tuning.database import shown as shown  # noqa: PLC0414  # for whoever has a storage

JOURNAL = "journal:///"
FILES = (store.SQLITE, JOURNAL)  # what the URLs of files begin with
SCHEMES = ("sqlite", "journal", "postgresql", "mysql", "grpc")
PORTS = store.PORTS | {"grpc": 13_000}
ANYWHERE = ("0.0.0.0", "::")  # noqa: S104
LOCAL = ("localhost", "127.0.0.1", "::1")


def place(url: str | None = None) -> str:
    """The storage's URL: the one given, else OPTUNA_STORAGE, else a database beside MLflow's."""
    found = url or os.environ.get("OPTUNA_STORAGE") or _beside()
    for start in FILES:
        if found.startswith(start):
            return f"{start}{Path(found.removeprefix(start)).resolve()}"
    return found.rstrip("/")


def _beside() -> str:
    """The studies' own database in the tracking home: one for every tracking server."""
    own = store.uri().startswith(store.SQLITE)
    name = "optuna.db" if own else f"optuna-{digest(store.uri())}.db"
    return f"{store.SQLITE}{store.home() / name}"


def one_machine(url: str) -> bool:
    """Whether only processes of one machine may work on the storage's studies: it is a file."""
    return _scheme(url) in ("sqlite", "journal")


def _scheme(url: str) -> str:
    return urlsplit(url).scheme.partition("+")[0]


@functools.cache
def connect(url: str) -> Any:
    """The Optuna storage at a URL of `place`; its tables are made where it is new.

    UserError, within seconds, where none can be had there.
    """
    from optuna.exceptions import OptunaError
    from sqlalchemy.exc import SQLAlchemyError

    _check(url)
    try:
        if not one_machine(url):
            _knock(url)
        openers = {"grpc": _proxy, "journal": _journal}
        with quiet():
            return openers.get(_scheme(url), opened)(url)
    except ImportError as error:
        raise missing_driver(url, error) from error
    except (OptunaError, SQLAlchemyError, OSError, RuntimeError) as error:
        raise Unavailable(
            f"The storage of studies must be reachable. Received: {shown(url)}: "
            f"{_said(error)}. Check --storage or OPTUNA_STORAGE."
        ) from error


def _said(error: Any) -> str:
    """What went wrong, in the words of the library that knows most: Optuna's says the least."""
    import grpc

    cause = error.__cause__ if type(error).__name__ == "StorageInternalError" else error
    cause = getattr(cause, "orig", None) or cause
    if isinstance(cause, grpc.Call):  # of a proxy: its own text is a table
        cause = RuntimeError(f"{cause.code().name}: {cause.details()}")
    return short(cause).rstrip(".!")


def _check(url: str) -> None:
    try:
        fits = urlsplit(url).port != 0 and urlsplit(url).netloc.count("@") < 2
    except ValueError:  # a port that is no number
        fits = False
    if one_machine(url):
        fits = url.startswith(FILES) and Path(url).name != ":memory:"
    elif _scheme(url) == "grpc":
        fits = fits and bool(urlsplit(url).hostname)
    if not fits or _scheme(url) not in SCHEMES:
        raise UserError(
            "A storage must be sqlite:///FILE, journal:///FILE (Optuna's own), "
            "postgresql://USER:PASSWORD@HOST/DATABASE, "
            "mysql+pymysql://USER:PASSWORD@HOST/DATABASE (an @ of the password is %40) or "
            f"grpc://HOST:PORT. Received: {shown(url)}. Set --storage or OPTUNA_STORAGE."
        )


def _knock(url: str) -> None:
    """OSError, within seconds, where a server takes no connection."""
    parts = urlsplit(url)
    if parts.hostname:
        address = parts.hostname, parts.port or PORTS[_scheme(url)]
        socket.create_connection(address, ANSWER_S).close()


def _journal(url: str) -> Any:
    """Return Optuna's journal in a file, which every change of a study makes longer."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    path = Path(url.removeprefix(JOURNAL))
    make_folder(path.parent)
    return JournalStorage(JournalFileBackend(str(path)))


def _proxy(url: str) -> Any:
    """Optuna's gRPC proxy, which has answered; RuntimeError where something else does."""
    import grpc
    from optuna.storages import GrpcStorageProxy

    parts = urlsplit(url)
    found = GrpcStorageProxy(host=str(parts.hostname), port=parts.port or PORTS["grpc"])
    try:
        found.wait_server_ready(ANSWER_S)
        found.get_all_studies()
    except grpc.RpcError as error:
        raise RuntimeError(f"no proxy of Optuna's: {_said(error)}") from error
    return found


@contextmanager
def answering(url: str) -> Iterator[None]:
    """Turn the errors of a storage that goes away into one sentence."""
    import grpc
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (optuna.exceptions.StorageInternalError, SQLAlchemyError, grpc.RpcError) as error:
        raise Unavailable(
            f"The study's storage must answer. Received: {shown(url)}: {_said(error)}. What has "
            "been tried is kept: repeat the command when it is back."
        ) from error


def serve(url: str, host: str, port: int) -> None:
    """Be the gRPC proxy that workers on other machines use, until Ctrl-C or SIGTERM."""
    from optuna.storages import get_storage
    from optuna.storages._grpc import server as proxies  # the public one says not when it answers

    if _scheme(url) == "grpc":
        raise UserError(
            f"A proxy stands before a database. Received: {shown(url)}, a proxy itself. Name the "
            "database with --storage."
        )
    storage = get_storage(connect(url))
    _at(host, port, lambda: socket.create_server((host, port)).close())  # gRPC would share the port
    server = _at(host, port, lambda: proxies.make_server(storage, host, port))
    with _until_stopped("The proxy"):
        server.start()
        print(f"Workers of {shown(url)} take: --storage grpc://{_name(host)}:{port}", flush=True)
        print("It asks for no password: let only machines you trust reach it.", file=sys.stderr)
        server.wait_for_termination()
    server.stop(ANSWER_S).wait()


def dashboard(url: str, host: str, port: int) -> None:
    """Serve optuna-dashboard's pages on the storage until Ctrl-C or SIGTERM."""
    from optuna_dashboard import wsgi

    application = _refuse_foreign(wsgi(connect(url)), host)
    with (
        _at(host, port, lambda: make_server(host, port, application, _Threaded, _Terse)) as server,
        _until_stopped("The dashboard"),
    ):
        print(f"Studies of {shown(url)}: http://{_name(host)}:{port}", flush=True)
        print("Whoever opens it can change them: it asks for no password.", file=sys.stderr)
        server.serve_forever()


def _refuse_foreign(application: Any, host: str) -> Any:
    """Wrap a WSGI application: it answers requests for this machine alone.

    A foreign page can have its own name resolve to our address, and would then read our answers.
    """

    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        if _is_ours(environ.get("HTTP_HOST", ""), host):
            return application(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain")])
        ours = f"localhost and {_name(host)}"
        return [f"The dashboard answers at {ours}; --host adds another name.\n".encode()]

    return answer


def _is_ours(address: str, host: str) -> bool:
    """Return whether a Host header names this machine as served at `host`, at any port."""
    try:
        name = urlsplit(f"//{address}").hostname or ""
        if name in (*LOCAL, host.lower(), _name(host).lower()):
            return True
        return host in ANYWHERE and bool(ip_address(name))  # an address resolves to itself
    except ValueError:
        return False


class _Threaded(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Terse(WSGIRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing: a page that is open asks every few seconds."""


def _name(host: str) -> str:
    """By which others call an address to serve at."""
    return socket.gethostname() if host in ANYWHERE else host


def _at(host: str, port: int, bind: Callable[[], Any]) -> Any:
    """What `bind` gives; UserError where the address is not to be had."""
    try:
        return bind()
    except (OSError, OverflowError, RuntimeError) as error:
        raise UserError(
            f"The address to serve at must be free. Received: {host}:{port}: {error}. Choose "
            "another with --port or --host."
        ) from error


@contextmanager
def _until_stopped(what: str) -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        print(f"{what} has ended; the studies are kept.", file=sys.stderr)
