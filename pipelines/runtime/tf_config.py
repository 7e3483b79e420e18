"""Several machines: which part of a cluster this process is, as TF_CONFIG says it.

TF_CONFIG is TensorFlow's own setting, one JSON text a machine: {"cluster": {"worker": ["host:port",
...]}, "task": {"type": "worker", "index": 0}}. With workers alone (and a chief, if one is named)
training is synchronous; with "chief", "worker" and "ps" it is asynchronous between machines.
"""

import contextlib
import json
import logging
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.errors import Unavailable, UserError

TASKS = ("chief", "worker", "ps")
TASK = re.compile(r"/job:(\w+)/(?:replica:\d+/)?task:(\d+)")  # TensorFlow's names of them
PATIENCE_S = 300  # how long machines wait for one another at the start


class MachineLost(Unavailable):
    """A machine of the cluster has left, or never came."""


@dataclass(frozen=True)
class Role:
    """This process among the tasks of a cluster; addresses are `host:port`."""

    task: str
    index: int
    cluster: Mapping[str, tuple[str, ...]]

    @property
    def asynchronous(self) -> bool:
        """Whether parameter servers hold the weights; otherwise every worker holds them all."""
        return "ps" in self.cluster

    @property
    def chief(self) -> bool:
        """Whether this process writes the runs and the checkpoints."""
        return self.task == "chief" or ("chief" not in self.cluster and self == self._first)

    @property
    def workers(self) -> int:
        """How many machines compute gradients."""
        chiefs = 0 if self.asynchronous else len(self.cluster.get("chief", ()))
        return chiefs + len(self.cluster.get("worker", ()))

    @property
    def rank(self) -> int:
        """Position among the machines that compute gradients, in synchronous training."""
        return self.index + (len(self.cluster.get("chief", ())) if self.task == "worker" else 0)

    @property
    def _first(self) -> "Role":
        return Role("worker", 0, self.cluster)


def role() -> Role | None:
    """This process's part in the cluster of TF_CONFIG; None where it names no second machine.

    UserError for a TF_CONFIG that cannot be read, and on another engine than TensorFlow's.
    """
    text = os.environ.get("TF_CONFIG", "").strip()
    if not text:
        return None
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise _malformed("one JSON object", text) from error
    if not isinstance(config, dict):
        raise _malformed("one JSON object", text)
    if not config.get("cluster"):
        return None
    found = _role(_cluster(config["cluster"]), config.get("task"))
    if found.workers == 1 and not found.asynchronous:
        return None
    engine = os.environ.get("KERAS_BACKEND") or "tensorflow"
    if engine != "tensorflow":
        raise UserError(
            "TF_CONFIG sets up machines for TensorFlow's own engine. Received: KERAS_BACKEND="
            f"{engine!r}. Unset KERAS_BACKEND, or unset TF_CONFIG to train on one machine."
        )
    return found


def check_asynchronous(asynchronous: bool, role: Role | None) -> None:
    """Raise UserError unless recipe and TF_CONFIG both speak of parameter servers, or neither."""
    served = bool(role and role.asynchronous)
    if asynchronous != served:
        raise UserError(
            "asynchronous training and parameter servers need each other. Received: asynchronous="
            f"{asynchronous} and {'a' if served else 'no'} ps in TF_CONFIG. Set "
            "--asynchronous and a TF_CONFIG with chief, worker and ps, or neither."
        )


def _cluster(given: Any) -> dict[str, tuple[str, ...]]:
    """The addresses of every task; UserError unless they are complete, well formed and distinct."""
    if not isinstance(given, dict) or not given.keys() <= set(TASKS):
        raise _malformed(f"a cluster of the tasks {', '.join(TASKS)}", given)
    cluster: dict[str, tuple[str, ...]] = {}
    for task, addresses in given.items():
        if not isinstance(addresses, list) or not all(map(_is_address, addresses)):
            raise _malformed(f'a list of "host:port" for {task}', addresses)
        if addresses:
            cluster[task] = tuple(addresses)
    everyone = [address for addresses in cluster.values() for address in addresses]
    if len(set(everyone)) < len(everyone):
        raise _malformed("a different address for every task", given)
    if len(cluster.get("chief", ())) > 1:
        raise _malformed("at most one chief", given["chief"])
    if "ps" in cluster and not {"chief", "worker"} <= cluster.keys():
        raise _malformed("a chief and at least one worker beside its ps", given)
    return cluster


def _role(cluster: Mapping[str, tuple[str, ...]], task: Any) -> Role:
    """The role of `task`; UserError unless it is a task of the cluster."""
    if not isinstance(task, dict) or not {"type", "index"} <= task.keys():
        raise _malformed('a task with "type" and "index"', task)
    kind, index = task["type"], task["index"]
    if kind not in cluster:
        raise _malformed(f"a task of type {' or '.join(cluster)}", kind)
    count = len(cluster[kind])
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < count:
        raise _malformed(f"an index of {kind} from 0 to {count - 1}", index)
    return Role(kind, index, cluster)


def _is_address(value: Any) -> bool:
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    return bool(host) and port.isdigit() and 0 < int(port) < 2**16


def _malformed(rule: str, received: Any) -> UserError:
    return UserError(
        f"TF_CONFIG must give {rule}. Received: {received!r}. Set TF_CONFIG as README.md shows, "
        "or unset it to train on one machine."
    )


def meet(role: Role, seconds: float = PATIENCE_S) -> None:
    """Return when all machines are there: each listens at its own address and calls the others.

    MachineLost names those that do not come in time. Unavailable when the own port is taken.
    """
    everyone = [address for addresses in role.cluster.values() for address in addresses]
    with bound(role) as ours:
        ours.listen()
        own = role.cluster[role.task][role.index]
        wait_for([address for address in everyone if address != own], seconds)


def bound(role: Role) -> socket.socket:
    """A socket at this machine's own port, which answers nobody yet. Unavailable when taken."""
    own = role.cluster[role.task][role.index]
    dual = socket.has_dualstack_ipv6()
    ours = socket.socket(socket.AF_INET6 if dual else socket.AF_INET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if dual:
        ours.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
        ours.bind(("", int(own.rpartition(":")[2])))
    except OSError as error:
        ours.close()
        raise Unavailable(
            f"TF_CONFIG must give this machine a port that is free. Received: {own} ({error}). "
            "End the process that holds it, or name another port on every machine."
        ) from error
    return ours


def wait_for(addresses: Sequence[str], seconds: float = PATIENCE_S) -> None:
    """Return as soon as every address answers; MachineLost names those that do not in time."""
    deadline, missing = time.monotonic() + seconds, list(addresses)
    while missing := [address for address in missing if not answers(address)]:
        if time.monotonic() > deadline:
            raise MachineLost(
                f"Every machine of TF_CONFIG must be up within {seconds:g} s. Received no answer "
                f"from {', '.join(missing)}. Start the same command there, at the same time."
            )
        time.sleep(0.5)


def answers(address: str, seconds: float = 2.0) -> bool:
    """Whether a process listens at `host:port`."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def lost_machines(during: str) -> Iterator[None]:
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
            f"from {_named(error.message)}. Start the same command on every machine again: "
            "training goes on from the last checkpoint."
        ) from error


def repeated() -> Callable[[logging.LogRecord], bool]:
    """A filter of TensorFlow's log: a sentence for every worker that fails, once, and no traces."""
    told: set[str] = set()

    def keep(record: logging.LogRecord) -> bool:
        found = TASK.search(record.getMessage().partition("\n")[0])
        if found and found[0] not in told:
            told.add(found[0])
            print(f"{found[1]} {found[2]} has failed; its update is repeated.", file=sys.stderr)
        return not found

    return keep


def _named(message: str) -> str:
    """The other machines that an error of TensorFlow's names."""
    own = role()
    found = {(task, int(index)) for task, index in TASK.findall(message)}
    others = sorted(found - {(own.task, own.index)} if own else found)
    others = [each for each in others if each[0] == "ps"] or others  # workers may leave
    return ", ".join(f"{task} {index}" for task, index in others) or "another machine"
