"""A cluster on one computer: the command line in a process for every task of TF_CONFIG."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.conftest import ROOT, journals

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}  # as the command sets it where nobody has
COMMAND = (sys.executable, "-m", "pipelines", "run", "allconv-digits", "--scale", "smoke")


def cluster_config(cluster: Any, task: str, index: Any) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": task, "index": index}})


def free_addresses(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses


class Cluster:
    """One command in a process for each task of TF_CONFIG; only the chief has a tracking home."""

    def __init__(self, home: Path, options: tuple[str, ...], counts: Mapping[str, int]) -> None:
        self.home, self.options, self.counts = home, options, counts
        addresses = iter(free_addresses(sum(counts.values())))
        self.config = {task: [next(addresses) for _ in range(n)] for task, n in counts.items()}
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def start(self) -> None:
        """The same command on every machine; again, once it has ended."""
        for task, count in self.counts.items():
            for index in range(count):
                self.processes[f"{task}{index}"] = self._process(task, index)

    def _process(self, task: str, index: int) -> subprocess.Popen[str]:
        name = f"{task}{index}"
        chief = name == ("chief0" if "chief" in self.counts else "worker0")
        environment = {"TF_CONFIG": cluster_config(self.config, task, index)} | QUIET
        if not chief:
            environment["MLFLOW_TRACKING_URI"] = f"sqlite:///{self.home}/other/mlflow.db"
        with self._log(name).open("w") as log:
            return subprocess.Popen(
                [*COMMAND, *self.options],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                text=True,
            )

    def reach(self, step: int, seconds: float = 240) -> None:
        """Until the chief has logged that step; fails where a process ends before."""
        wanted = re.compile(rf'\["batch_loss", [^,]+, {step},')
        deadline = time.monotonic() + seconds
        while not wanted.search(journals(self.home)):
            ended = [name for name, each in self.processes.items() if each.poll() is not None]
            assert not ended, f"{ended[0]}: {self.said(ended[0])}"
            assert time.monotonic() < deadline, f"no step {step}"
            time.sleep(0.02)

    def send(self, name: str, number: int) -> None:
        os.killpg(self.processes[name].pid, number)

    def codes(self, seconds: float = 240) -> dict[str, int]:
        """Exit codes, when all have ended."""
        deadline = time.monotonic() + seconds
        return {
            name: each.wait(max(0.1, deadline - time.monotonic()))
            for name, each in self.processes.items()
        }

    def said(self, name: str) -> str:
        return self._log(name).read_text()

    def everything(self) -> str:
        return "\n".join(f"--- {name}\n{self.said(name)}" for name in self.processes)

    def _log(self, name: str) -> Path:
        return self.home.parent / f"{name}.log"

    def end(self) -> None:
        for each in self.processes.values():
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
            each.wait()
