"""What a long command says meanwhile: that it begins, how far it is, how long it still takes."""

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

SHOWN = {"loss": "loss {:.3g}", "error_pct": "error {:.1f} %"}  # numbers that a bar has room for
WIDE = 100  # columns of a terminal with room for the rate beside these numbers
PARTS = {"val": "validation", "train": "training"}  # the first of these splits is shown
_innermost: ContextVar[Callable[[str], None] | None] = ContextVar("innermost", default=None)


def say_begin(text: str, json: bool = False) -> None:
    """Say on standard error what begins, before libraries are loaded that take seconds."""
    if not json:
        print(text, file=sys.stderr, flush=True)


@contextmanager
def progress_bar(title: str, total: int, unit: str) -> Iterator[Callable[[int, float], None]]:
    """Yield `advance(count, rate)` of a bar on standard error, silent where it is no terminal.

    A rate that is not known yet is NaN. What `show_numbers` gets meanwhile stands beside the bar.
    """
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=None),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[about]}"),
        progress.TimeRemainingColumn(compact=True),
    )
    console = Console(stderr=True)
    silent = not console.is_terminal
    with progress.Progress(
        *columns, console=console, transient=True, disable=silent, expand=True
    ) as bar:
        task = bar.add_task(title, total=total, about="")
        fields = {"rate": "", "numbers": ""}

        def show(**changed: str) -> None:
            fields.update(changed)
            shown = [words for words in fields.values() if words]
            if console.width < WIDE:
                shown = [words.removeprefix(f"{PARTS['val']} ") for words in shown[-1:]]
            bar.update(task, about="  ".join(shown))

        def advance(count: int, rate: float) -> None:
            bar.update(task, advance=count)
            shown = f"{rate:,.0f} {unit}" if rate >= 100 else f"{rate:.3g} {unit}"
            show(rate="" if math.isnan(rate) or not unit else shown)

        outer = _innermost.set(lambda numbers: show(numbers=numbers))
        try:
            yield advance
        finally:
            _innermost.reset(outer)


def show_numbers(metrics: Mapping[str, Any]) -> None:
    """Show loss and error of the last validation, or epoch, beside the innermost bar, if any."""
    show = _innermost.get()
    part = next((each for each in PARTS if f"{each}_loss" in metrics), None)
    if show and part:
        known = [metrics.get(f"{part}_{key}") for key in SHOWN]
        forms = zip(SHOWN.values(), known, strict=True)
        numbers = [form.format(value) for form, value in forms if value is not None]
        show(f"{PARTS[part]} {', '.join(numbers)}")
