"""Tasks: numbers of an example, against counting by hand."""

import numpy as np
import pytest

from pipelines.tasks import TOP5


def test_top5_error_counts_labels_beyond_the_five_largest_logits() -> None:
    logits = np.tile(np.arange(10, dtype=np.float32), (10, 1))
    values = np.asarray(TOP5.numbers["top5_error_pct"](np.arange(10), logits))
    assert values.tolist() == [100] * 5 + [0] * 5
    assert np.asarray(TOP5.numbers["error_pct"](np.arange(10), logits)).tolist() == [100] * 9 + [0]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_equal_logits_are_not_all_among_the_five(dtype: str) -> None:
    error = TOP5.numbers["top5_error_pct"](np.arange(20, dtype=dtype), np.zeros((20, 20), "f4"))
    assert np.asarray(error).sum() == 15 * 100
