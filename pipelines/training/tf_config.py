"""Several machines: which part of a cluster this process is, as TF_CONFIG says it.

TF_CONFIG is TensorFlow's own setting, one JSON text a machine: {"cluster": {"worker": ["host:port",
...]}, "task": {"type": "worker", "index": 0}}. A "chief" may be named beside the workers. Parameter
servers, "ps", are refused: all machines train in step.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.errors import UserError

TASKS = ("chief", "worker")


@dataclass(frozen=True)
class Role:
    """This process among the tasks of a cluster; addresses are `host:port`."""

    task: str
    index: int
    cluster: Mapping[str, tuple[str, ...]]

    @property
    def chief(self) -> bool:
        """Return whether this process writes the runs and the checkpoints."""
        return self.rank == 0

    @property
    def workers(self) -> int:
        """Return how many machines there are."""
        return sum(map(len, self.cluster.values()))

    @property
    def rank(self) -> int:
        """Return the position among the machines: 0 of the chief, or else of worker 0."""
        return self.index + (len(self.cluster.get("chief", ())) if self.task == "worker" else 0)


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
    if own_role.workers == 1:
        return None
    engine = os.environ.get("KERAS_BACKEND") or "tensorflow"
    if engine != "tensorflow":
        raise UserError(
            "TF_CONFIG sets up machines for TensorFlow's own engine. Received: KERAS_BACKEND="
            f"{engine!r}. Unset KERAS_BACKEND, or unset TF_CONFIG to train on one machine."
        )
    return own_role


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
    return cluster


def _is_address(value: Any) -> bool:
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    return bool(host) and port.isdigit() and 0 < int(port) < 2**16


def _format_error(rule: str, received: Any) -> UserError:
    return UserError(
        f"TF_CONFIG must give {rule}. Received: {received!r}. Set TF_CONFIG as "
        "docs/how-to/clusters.md shows, or unset it to train on one machine."
    )
