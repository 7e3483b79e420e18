"""In what the published recipes differ from their sources, or say what these leave open.

One table for each cell of HM Table 2 and LY Table 1, which its claim's card shows. Effects are in
points of test error. They are estimates, nothing that was measured here, unless they say so.
"""

from typing import NamedTuple


class Difference(NamedTuple):
    """A setting: what is run here, what the source has, what that is likely to change."""

    setting: str
    here: str
    source: str
    effect: str


NOT_STATED = "not stated"
ALLCONV = (
    Difference(
        "pictures",
        "padded to 36x36, so moved by up to 2 pixels, flipped, each standardized by itself",
        'HM: "with standard data augmentation"; the code of their footnote 5 does as we do',
        "0.3 or less: `allconv-cifar10-shift4` moves them by 4, as He et al. do",
    ),
    Difference(
        "length",
        "56,000 steps",
        'HM: "reaches peak performance at around 50k steps"; drops at 30,000 and 50,000',
        "small: after the last drop the rate is 0.0005",
    ),
    Difference(
        "what is reported",
        "the least error of 56 evaluations, each on half of the test set in turn",
        "HM name no rule; the code of their footnote 5 reports the best of all checkpoints, each "
        "on 5,000 test pictures in turn, how often is not known",
        "0.3 to 0.5 below the error of the last weights; more evaluations choose more",
    ),
    Difference(
        "network",
        "HM Table 1 as printed: 13,538,736 weights",
        "Table 1; 13.59 million in the text, which projections and biases would give (13,589,248)",
        "0.2 or less",
    ),
    Difference(
        "ReLUs, zeros, biases",
        "ReLU between the two convolutions of a block, zeros after the other channels, no bias",
        "HM Table 1; the code has slope 0.1, a ReLU behind the stem and ahead of the pooling, "
        "zeros half before and half after, biases in the logits",
        "not known: `allconv-cifar10-leaky` has all four",
    ),
    Difference(
        "last layer",
        "fixed, entries N(0, 1/width)",
        "HM: a fixed random projection, of a scale that they do not state; the code: "
        "`uniform_unit_scaling(1.0)`, uniform with the same deviation",
        "0.1 or less; with entries of deviation 1 the training diverges (measured)",
    ),
    Difference(
        "momentum, decay",
        "0.9; decay in the convolutions, not in the fixed layer",
        "momentum 0.9, decay 0.0001; on which weights is not stated",
        "none",
    ),
    Difference(
        "precision",
        "float32",
        "float32 on a K40",
        "none; `allconv-cifar10-tensorfloat32` rounds factors of products to 10 bits",
    ),
)
DIFFERENCES: dict[str, tuple[Difference, ...]] = {
    "allconv-cifar10": ALLCONV,
    "allconv-cifar100": (
        *(row for row in ALLCONV if row.setting not in ("network", "pictures", "precision")),
        Difference(
            "pictures",
            "as for CIFAR-10",
            "HM: CIFAR-100 is trained alike; the code of their footnote 5 reads it alike",
            "0.5 or less",
        ),
    ),
}


def table(name: str) -> str:
    """Return the differences of a cell as a table in Markdown, one line a setting."""
    rows = DIFFERENCES.get(name, ())
    cells = [("setting", "here", "source", "likely effect"), ("---",) * 4, *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)
