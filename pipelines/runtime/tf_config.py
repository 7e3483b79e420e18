"""Several machines: which part of a cluster this process is, as TF_CONFIG says it.

TF_CONFIG is TensorFlow's own setting, one JSON text a machine: {"cluster": {"worker": ["host:port",
...]}, "task": {"type": "worker", "index": 0}}. With workers alone (and a chief, if one is named)
training is synchronous; with "chief", "worker" and "ps" it is asynchronous between machines.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.errors import UserError

TASKS = ("chief", "worker", "ps")


@dataclass(frozen=True)
class Role:
    """This process among the tasks of a cluster; addresses are `host:port`."""

    task: str
    index: int
    cluster: Mapping[str, tuple[str, ...]]

    @property
    def asynchronous(self) -> bool:
        """Return whether parameter servers hold the weights; else every worker holds them all."""
        return "ps" in self.cluster

    @property
    def chief(self) -> bool:
        """Return whether this process writes the runs and the checkpoints."""
        return self.task == "chief" or ("chief" not in self.cluster and self == self._first)

    @property
    def workers(self) -> int:
        """Return how many machines compute gradients."""
        chiefs = 0 if self.asynchronous else len(self.cluster.get("chief", ()))
        return chiefs + len(self.cluster.get("worker", ()))

    @property
    def rank(self) -> int:
        """Return the position among the machines that compute gradients, if synchronous."""
        return self.index + (len(self.cluster.get("chief", ())) if self.task == "worker" else 0)

    @property
    def _first(self) -> "Role":
        return Role("worker", 0, self.cluster)


def role() -> Role | None:
    """Return this process's part in the cluster of TF_CONFIG; None without a second machine.

    Raise UserError for a TF_CONFIG that cannot be read, and on another engine than TensorFlow's.
    """
    text = os.environ.get("TF_CONFIG", "").strip()
    if not text:
        return None
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise _format_error("one JSON object", text) from error
    if not isinstance(config, dict):
        raise _format_error("one JSON object", text)
    if not config.get("cluster"):
        return None
    cluster, task = _cluster(config["cluster"]), config.get("task")
    if not isinstance(task, dict) or not {"type", "index"} <= task.keys():
        raise _format_error('a task with "type" and "index"', task)
    kind, index = task["type"], task["index"]
    if kind not in cluster:
        raise _format_error(f"a task of type {' or '.join(cluster)}", kind)
    count = len(cluster[kind])
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < count:
        raise _format_error(f"an index of {kind} from 0 to {count - 1}", index)
    own_role = Role(kind, index, cluster)
    if own_role.workers == 1 and not own_role.asynchronous:
        return None
    engine = os.environ.get("KERAS_BACKEND") or "tensorflow"
    if engine != "tensorflow":
        raise UserError(
            "TF_CONFIG sets up machines for TensorFlow's own engine. Received: KERAS_BACKEND="
            f"{engine!r}. Unset KERAS_BACKEND, or unset TF_CONFIG to train on one machine."
        )
    return own_role


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
    """Return the addresses of all tasks. Raise UserError unless complete, valid and distinct."""
    if not isinstance(given, dict) or not given.keys() <= set(TASKS):
        raise _format_error(f"a cluster of the tasks {', '.join(TASKS)}", given)
    cluster: dict[str, tuple[str, ...]] = {}
    for task, addresses in given.items():
        if not isinstance(addresses, list) or not all(map(_is_address, addresses)):
            raise _format_error(f'a list of "host:port" for {task}', addresses)
        if addresses:
            cluster[task] = tuple(addresses)
    everyone = [address for addresses in cluster.values() for address in addresses]
    if len(set(everyone)) < len(everyone):
        raise _format_error("a different address for every task", given)
    if len(cluster.get("chief", ())) > 1:
        raise _format_error("at most one chief", given["chief"])
    if "ps" in cluster and not {"chief", "worker"} <= cluster.keys():
        raise _format_error("a chief and at least one worker beside its ps", given)
    return cluster


def _is_address(value: Any) -> bool:
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    return bool(host) and port.isdigit() and 0 < int(port) < 2**16


def _format_error(rule: str, received: Any) -> UserError:
    return UserError(
        f"TF_CONFIG must give {rule}. Received: {received!r}. Set TF_CONFIG as "
        "docs/how-to/clusters.md shows, or unset it to train on one machine."
    )
