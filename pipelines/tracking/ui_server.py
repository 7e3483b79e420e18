"""MLflow's server on the present store: started for a person, and where it is.

`python -m pipelines.tracking.ui_server ADDRESS FIRST` waits until a server answers at an address,
and prints what to open first: a process of its own, for `ui` becomes the server.
"""

import errno
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress

from pipelines.errors import UserError
from pipelines.runtime import heartbeat, places
from pipelines.tracking import database, store

PORT = 5000  # where none is given
DEFAULT = f"http://127.0.0.1:{PORT}"
RUNNING = "ui.json"  # file in the home: where the latest UI is, and its process
WAIT_S = 0.2  # between two questions whether the server answers


def address(host: str = "", port: int = 0) -> str:
    """Return where the UI is: at the tracking server, at that port, else where one runs, or would.

    Links are passed on: a server's name and password are no part of it.
    """
    if store.is_server():
        return re.sub("//[^/@]*@", "//", store.uri())
    if host and port:
        return f"http://{host}:{port}"
    return running() or DEFAULT


def running() -> str:
    """Return the address at which the present store is served by `serve` now; empty where none."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):  # no file, or another
        known = json.loads((store.home() / RUNNING).read_text())
        if heartbeat.reason_dead(known) is None:
            return str(known["address"])
    return ""


def check_port(host: str, port: int) -> None:
    """Raise UserError where another process, maybe a UI, has the port, or there is none such."""
    if not 0 < port < 1 << 16:
        raise UserError(f"A port is a number from 1 to 65535. Received: {port}. Set --port to one.")
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        why = getattr(error, "strerror", None) or error
        hint = "It may be served there already; else set --port to another."
        if error.errno != errno.EADDRINUSE:
            hint = "Set --host to an address of this machine, and --port to one that you may take."
        raise UserError(
            f"The UI needs a free port. Received: {host}:{port} ({why}). {hint}"
        ) from error


def serve(host: str, port: int, first: str) -> None:
    """Become the MLflow server of the present store, which must be a database; does not return.

    Once it answers, the address `first` is printed. The store's address goes by the environment:
    every user of the machine can read the arguments of a process, and in the address is a password.
    MLflow's Assistant runs commands on the server's machine in a container or not at all.
    """
    if not running():  # links name the first of several
        here = {"address": address(host, port), **heartbeat.tags()}  # this becomes the server
        (store.home() / RUNNING).write_text(json.dumps(here))
    os.environ.setdefault("MLFLOW_ENABLE_ASSISTANT_SANDBOX", "true")
    os.environ["MLFLOW_BACKEND_STORE_URI"] = store.uri()
    os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"
    os.environ |= {"MLFLOW_LOGGING_LEVEL": "WARNING", "PYTHONWARNINGS": "ignore"}
    arguments = ["server", "--host", host, "--port", str(port)]
    arguments += ["--uvicorn-opts", "--log-level warning"]  # the address stays in sight
    if store.uri().startswith(database.SQLITE):
        arguments += ["--default-artifact-root", (store.home() / "artifacts").as_uri()]
    root = {"PYTHONPATH": str(places.ROOT)} if places.is_checkout() else {}
    waiting = [sys.executable, "-P", "-m", __name__, address(host, port), first]
    subprocess.Popen(waiting, env=os.environ | root)
    os.execv(sys.executable, [sys.executable, "-m", "mlflow", *arguments, "--workers", "1"])


def _wait(url: str, first: str) -> None:
    """Print the address to open once the server answers; nothing if it ends before."""
    server = os.getppid()
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while os.getppid() == server:
        try:
            direct.open(f"{url}/health", timeout=5).close()
        except OSError:
            time.sleep(WAIT_S)
        else:
            print(f"Open this: {first}", flush=True)
            return


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):  # the server ends, too
        _wait(*sys.argv[1:])
