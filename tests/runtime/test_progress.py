"""The bar in a terminal: loss and error of the last validation beside it, at every width."""

import pytest

from tests import terminal

SOURCE = """
import math, time
from pipelines.runtime.progress import progress_bar, show_numbers
show_numbers({"val_loss": 9.0})  # there is no bar yet
with progress_bar("allconv-cifar10-footnote5", 64_000, "images/s") as advance:
    advance(1, math.nan)
    show_numbers({"batch_loss": 0.5, "learning_rate": 0.1})
    advance(12_344, 7_654.3)
    time.sleep(0.2)
    show_numbers({"train_loss": 0.7, "val_loss": 0.4219, "val_error_pct": 12.34})
    time.sleep(0.2)
"""


@pytest.mark.parametrize(("columns", "has_rate"), [(80, False), (140, True)])
def test_a_bar_shows_loss_and_error(columns: int, has_rate: bool) -> None:
    written = terminal.output("-c", SOURCE, columns=columns)
    lines = [line for line in written.replace("\r", "\n").splitlines() if line.strip()]
    assert max(map(len, lines)) <= columns
    assert "7,654 images/s" in written
    [*_, last] = [line for line in lines if "loss" in line]
    assert "12345/64000" in last
    assert f"{'validation ' * has_rate}loss 0.422, error 12.3 %" in last
    assert ("7,654 images/s" in last) == has_rate
