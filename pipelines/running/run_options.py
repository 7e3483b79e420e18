"""Options of a run: what is done about earlier runs, how often it is saved, when it pauses."""

import math
import time
from dataclasses import dataclass
from typing import Any

from pipelines.errors import Paused


@dataclass(frozen=True)
class RunOptions:
    """Treatment of earlier runs, checkpoints, pauses, and the machines that train."""

    force: bool = False
    """Train again what has finished."""
    new_run: bool = False
    """Start anew what was interrupted."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; None: about a minute."""
    until: float = math.inf
    """The moment of time.monotonic() from which on what is done is saved and Paused is raised."""
    machines: Any = None
    """Several machines that train (training.multi_machine.Machines); None: this one."""
    system_metrics: bool = False
    """Log processor, memory, disk and network use beside the curves of a training."""

    def pause(self, done: int, whole: int, what: str) -> None:
        """Raise Paused between two of `whole` things where the time is over."""
        if done < whole and time.monotonic() >= self.until:
            raise Paused(f"{done} of {whole} {what}")


DEFAULT = RunOptions()
