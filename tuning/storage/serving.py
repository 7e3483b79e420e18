"""Servers before a storage: Optuna's gRPC proxy for other machines, and optuna-dashboard."""

import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from socketserver import ThreadingMixIn
from typing import Any
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from pipelines.errors import UserError, without_password
from pipelines.runtime.notify import LOOPBACK
from tuning.optuna_log import silence
from tuning.storage.storage import connect

ALL_INTERFACES = ("0.0.0.0", "::")  # noqa: S104


def serve_proxy(url: str, host: str, port: int) -> None:
    """Be the gRPC proxy that workers on other machines use, until Ctrl-C or SIGTERM."""
    from optuna.storages import get_storage, run_grpc_proxy_server

    if url.startswith("grpc:"):
        raise UserError(
            f"A proxy stands before a storage. Received: {without_password(url)}, a proxy itself. "
            "Name the storage with --storage."
        )
    storage = get_storage(connect(url))
    _bind(host, port, lambda: socket.create_server((host, port)).close())  # gRPC would share it
    print(
        f"Workers of {without_password(url)} take: --storage grpc://{_public_name(host)}:{port}",
        flush=True,
    )
    print("It asks for no password: let only machines you trust reach it.", file=sys.stderr)
    with _until_stopped("The proxy"), silence():
        run_grpc_proxy_server(storage, host=host, port=port)


def serve_dashboard(url: str, host: str, port: int) -> None:
    """Serve optuna-dashboard's pages on the storage until Ctrl-C or SIGTERM."""
    from optuna_dashboard import wsgi

    application = _refuse_foreign(wsgi(connect(url)), host)
    with (
        _bind(
            host, port, lambda: make_server(host, port, application, _Threaded, _Terse)
        ) as server,
        _until_stopped("The dashboard"),
    ):
        print(f"Studies of {without_password(url)}: http://{_public_name(host)}:{port}", flush=True)
        print("Whoever opens it can change them: it asks for no password.", file=sys.stderr)
        server.serve_forever()


def _refuse_foreign(application: Any, host: str) -> Any:
    """Wrap a WSGI application: it answers requests for this machine alone.

    A foreign page can have its own name resolve to our address, and would then read our answers.
    """

    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        name, is_ours = "", False
        with suppress(ValueError):  # no address, no host
            name = urlsplit(f"//{environ.get('HTTP_HOST', '')}").hostname or ""
            is_ours = host in ALL_INTERFACES and bool(ip_address(name))  # resolves to itself
        if is_ours or name in (*LOOPBACK, host.lower(), _public_name(host).lower()):
            return application(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain")])
        ours = f"localhost and {_public_name(host)}"
        return [f"The dashboard answers at {ours}; --host adds another name.\n".encode()]

    return answer


class _Threaded(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Terse(WSGIRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Write nothing: a page that is open asks every few seconds."""


def _public_name(host: str) -> str:
    """Return by which name others call an address to serve at."""
    return socket.gethostname() if host in ALL_INTERFACES else host


def _bind(host: str, port: int, bind: Callable[[], Any]) -> Any:
    """Return what `bind` gives; raise UserError where the address is not to be had."""
    try:
        return bind()
    except (OSError, OverflowError) as error:
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
