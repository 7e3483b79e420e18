"""Tables and sentences in the terminal, at every width: no name and no address is folded."""

import sys
import textwrap
from collections.abc import Collection
from typing import Any

GAP = 3  # columns of a terminal between two of a table


def plain_table(*columns: str, right: Collection[str] = (), whole: int = 1) -> Any:
    """Return rich's table with these columns, a line below their head, to add rows to.

    The first columns, as many as are `whole`, have names and stay as wide as the longest.
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number, column in enumerate(columns):
        side: Any = "right" if column in right else "left"
        table.add_column(column, overflow="fold", justify=side, no_wrap=number < whole)
    return table


def print_prose(text: str, indent: str = "", after: str = "") -> None:
    """Print a sentence, set in; broken between words where it goes to a terminal.

    `after` is set before every line but the first.
    """
    print(wrap_prose(text, indent, after) if sys.stdout.isatty() else f"{indent}{text}")


def wrap_prose(text: str, indent: str = "", after: str = "") -> str:
    """Return a text in lines of the terminal's width; a path or an address stays whole."""
    from shutil import get_terminal_size

    return textwrap.fill(
        text,
        max(20, get_terminal_size().columns - 1),
        initial_indent=indent,
        subsequent_indent=after or indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
