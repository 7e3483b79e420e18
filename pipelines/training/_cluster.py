"""The machines of a cluster at its start and its end: who is there, and which one was lost.

Every machine waits at its own address until all answer; an error of TensorFlow's about a machine
that has gone becomes one sentence that names it.
"""

import contextlib
import re
import socket
import time
from collections.abc import Iterator

from pipelines.errors import Unavailable
from pipelines.training.tf_config import Role, role

TASK = re.compile(r"/job:(\w+)/(?:replica:\d+/)?task:(\d+)")  # TensorFlow's names of them
PATIENCE_S = 300  # how long machines wait for one another at the start


class MachineLost(Unavailable):
    """A machine of the cluster has left, or never came."""


def wait_for_all(role: Role, seconds: float = PATIENCE_S) -> None:
    """Return when all machines are there: each listens at its own address and calls the others.

    MachineLost names those that do not come in time. Unavailable when the own port is taken.
    """
    deadline = time.monotonic() + seconds
    missing = [address for addresses in role.cluster.values() for address in addresses]
    missing.remove(role.cluster[role.task][role.index])
    with bind_port(role) as ours:
        ours.listen()
        while missing := [address for address in missing if not is_listening(address)]:
            if time.monotonic() > deadline:
                raise MachineLost(
                    f"Every machine of TF_CONFIG must be up within {seconds:g} s. Received no "
                    f"answer from {', '.join(missing)}. Start the same command there, at the same "
                    "time."
                )
            time.sleep(0.5)


def bind_port(role: Role) -> socket.socket:
    """Return a socket at this machine's own port, which answers nobody yet.

    Unavailable when taken.
    """
    address = role.cluster[role.task][role.index]
    dual = socket.has_dualstack_ipv6()
    ours = socket.socket(socket.AF_INET6 if dual else socket.AF_INET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if dual:
        ours.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
        ours.bind(("", int(address.rpartition(":")[2])))
    except OSError as error:
        ours.close()
        raise Unavailable(
            f"TF_CONFIG must give this machine a port that is free. Received: {address} ({error}). "
            "End the process that holds it, or name another port on every machine."
        ) from error
    return ours


def is_listening(address: str, seconds: float = 2.0) -> bool:
    """Return whether a process listens at `host:port`."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def translate_errors(during: str) -> Iterator[None]:
    """Turn TensorFlow's errors about a machine that has gone into one sentence: MachineLost."""
    from tensorflow import errors

    try:
        yield
    except (
        errors.UnavailableError,
        errors.AbortedError,
        errors.CancelledError,
        errors.DeadlineExceededError,
        errors.FailedPreconditionError,
    ) as error:
        raise MachineLost(
            f"Every machine of TF_CONFIG must stay to the end. Received during {during}: no answer "
            f"from {_name_others(error.message)}. Start the same command on every machine again: "
            "training goes on from the last checkpoint."
        ) from error


def _name_others(message: str) -> str:
    """Return the other machines that an error of TensorFlow's names."""
    own_role = role()
    machines = {(task, int(index)) for task, index in TASK.findall(message)}
    others = sorted(machines - {(own_role.task, own_role.index)} if own_role else machines)
    return ", ".join(f"{task} {index}" for task, index in others) or "another machine"
