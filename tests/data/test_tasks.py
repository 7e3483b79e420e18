"""Tasks: numbers of an example, against counting by hand."""

import numpy as np
import pytest

from pipelines.data.task_metrics import TOP5, cross_entropy, smoothed_cross_entropy


def test_top5_error_counts_labels_beyond_the_five_largest_logits() -> None:
    logits = np.tile(np.arange(10, dtype=np.float32), (10, 1))
    values = np.asarray(TOP5.numbers["top5_error_pct"](np.arange(10), logits))
    assert values.tolist() == [100] * 5 + [0] * 5
    assert np.asarray(TOP5.numbers["error_pct"](np.arange(10), logits)).tolist() == [100] * 9 + [0]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_equal_logits_are_not_all_among_the_five(dtype: str) -> None:
    error = TOP5.numbers["top5_error_pct"](np.arange(20, dtype=dtype), np.zeros((20, 20), "f4"))
    assert np.asarray(error).sum() == 15 * 100


def test_smoothed_labels_give_a_share_to_all_classes_alike() -> None:
    logits = np.log([[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]]).astype(np.float32)
    ln2 = np.log(2)
    # labels 0 and 1 keep 0.7 + 0.1 of their weight, each other class gets 0.1
    expected = [0.8 * ln2 + 0.2 * 2 * ln2, 0.9 * 2 * ln2 + 0.1 * ln2]
    found = np.asarray(smoothed_cross_entropy(np.array([0, 1]), logits, share=0.3))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    none = np.asarray(smoothed_cross_entropy(np.array([0, 1]), logits, share=0.0))
    np.testing.assert_allclose(none, np.asarray(cross_entropy(np.array([0, 1]), logits)))
