"""optuna-dashboard on a storage of studies, which answers requests for this machine alone."""

import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address
from socketserver import ThreadingMixIn
from typing import Any
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from pipelines.errors import UserError, without_password
from pipelines.runtime.notify import LOOPBACK
from tuning.storage.storage import connect

ALL_INTERFACES = ("0.0.0.0", "::")  # noqa: S104


def serve_dashboard(url: str, host: str, port: int) -> None:
    """Serve optuna-dashboard's pages on the storage until Ctrl-C or SIGTERM."""
    from optuna_dashboard import wsgi

    application = _refuse_foreign(wsgi(connect(url)), host)
    try:
        server = make_server(host, port, application, _Threaded, _Terse)
    except (OSError, OverflowError) as error:
        raise UserError(
            f"The address to serve at must be free. Received: {host}:{port}: {error}. Choose "
            "another with --port or --host."
        ) from error
    with server:
        try:
            print(
                f"Studies of {without_password(url)}: http://{_public_name(host)}:{port}",
                flush=True,
            )
            print("Whoever opens it can change them: it asks for no password.", file=sys.stderr)
            server.serve_forever()
        except (KeyboardInterrupt, SystemExit):
            print("The dashboard has ended; the studies are kept.", file=sys.stderr)


def save_figures(study: Any, figures: Mapping[str, Any]) -> None:
    """Let optuna-dashboard show Plotly's figures beside its own, whose axes cannot be set."""
    from optuna_dashboard import save_plotly_graph_object

    for key, figure in figures.items():
        save_plotly_graph_object(study, figure, graph_object_id=key)


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
