"""The bar in the terminal: how far a long command is, how fast, and how long it still takes."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(title: str, total: int, unit: str) -> Iterator[Callable[[int, float], None]]:
    """Yield `advance(count, rate)` of a bar on standard error, silent where it is no terminal.

    A rate that is not known yet is NaN.
    """
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn(f"{{task.fields[rate]:,.4g}} {unit}  time left"),
        progress.TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    silent = not console.is_terminal
    with progress.Progress(*columns, console=console, transient=True, disable=silent) as bar:
        task = bar.add_task(title, total=total, rate=0.0)

        def advance(count: int, rate: float) -> None:
            bar.update(task, advance=count, rate=0.0 if math.isnan(rate) else rate)

        yield advance
