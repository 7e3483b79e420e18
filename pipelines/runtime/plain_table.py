"""Tables in the terminal: a line below their head, nothing around them."""

from collections.abc import Collection
from typing import Any


def plain_table(*columns: str, right: Collection[str] = ()) -> Any:
    """Return rich's table with these columns, in which long words are folded, to add rows to."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column in right else "left")
    return table
