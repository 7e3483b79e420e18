"""Differences of the published recipes from their sources, and what these leave open.

One table for each cell of HM Table 2 and LY Table 1, and for the stand-in on Tiny ImageNet, which
its claims' cards show. Effects are in points of test error. They are estimates, nothing that was
measured here, unless they say so.
"""

from typing import NamedTuple


class Difference(NamedTuple):
    """A setting: what is run here, what the source has, what that is likely to change."""

    setting: str
    here: str
    source: str
    effect: str


HEADING = "Where this differs from its source, or the source leaves it open:"
NOT_STATED = "not stated"
ALLCONV = (
    Difference(
        "pictures",
        "padded to 36x36, so moved by up to 2 pixels, flipped, each standardized by itself",
        'HM: "with standard data augmentation"; ours is as in the code of their footnote 5',
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
        "runs",
        "three seeds, and the interval of one more",
        'HM Figure 1: "best model"; of how many is not stated',
        "lowers theirs, by how much is not known",
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
        "HM section 4.1: the ReLU between, average pooling and padding, no trained weights but the "
        "convolutions'; the code has slope 0.1, a ReLU behind the stem and ahead of the pooling, "
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
        "momentum",
        "0.9, the rate outside the velocity",
        "momentum 0.9; TensorFlow's, in the code, has the rate outside, too",
        "none",
    ),
    Difference(
        "precision",
        "float32",
        "float32 on a K40",
        "none; `allconv-cifar10-tensorfloat32` rounds factors of products to 10 bits",
    ),
)
PIXELS = Difference(
    "pixels",
    "less the mean of each channel, over its deviation",
    "He et al.: less the mean of each pixel",
    "0.1 or less",
)
KERNELS_DECAY = Difference(
    "weight decay",
    "in convolutions and the last layer, not in biases and normalization",
    "0.0001; in which weights is not stated",
    "0.2 or less",
)
MOMENTS = Difference(
    "batch normalization",
    "epsilon 0.00001, momentum 0.9",
    "not stated",
    "0.1 or less",
)
DROPS = Difference(
    "drops of the rate",
    "three, at equal distances",
    "when the error stops falling",
    "0.5 or less",
)
CROPS = "8 to 100 % of the area, resized to 224x224, flipped; no shifts of colour"
UNREAD = "not known: the paper was not at hand"
ONE_SEED = Difference(
    "runs",
    "one seed by default, which decides nothing",
    "one network",
    "seeds differ by about 0.1 to 0.3",
)
DENSENET = (
    Difference(
        "weight decay",
        "0.0001 in all weights, biases and normalization too",
        "0.0001, Huang et al. section 4.2; Torch's optimizer lets all weights decay",
        "0.1 or less",
    ),
    Difference(
        "momentum",
        "Nesterov's form, the rate outside the velocity",
        "Nesterov's form without dampening, section 4.2; Torch's has the rate outside",
        "none",
    ),
    Difference(
        "runs",
        "five seeds, and the interval of one more",
        "one error, of the end of the training",
        "seeds differ by about 0.1",
    ),
)
ALLCNN = (
    Difference(
        "pictures",
        "contrast of each normalized, then ZCA, with the constants of pylearn2 as remembered "
        "(10 and 0.1); moved by up to 5 pixels, flipped",
        "whitened and contrast normalized as Goodfellow et al. 2013; moved by up to 5 pixels, "
        "flipped, as remembered",
        "0.2 or less",
    ),
    Difference(
        "rate", "0.05", "the best of 0.25, 0.1, 0.05 and 0.01, as remembered", "0.5 or less"
    ),
    Difference("batch", "128", UNREAD, "0.2 or less"),
    Difference("start", "normal, variance 2/inputs", UNREAD, "small, but for seeds that die"),
    Difference(
        "dead seeds",
        "a ReLU ahead of the average can be 0 everywhere for a class: a seed that errs on 60 % or "
        "more has not trained, and with one nothing is reproduced",
        UNREAD,
        "not known",
    ),
)
DIFFERENCES: dict[str, tuple[Difference, ...]] = {
    "allconv-cifar10": ALLCONV,
    "allconv-cifar100": (
        Difference(
            "pictures",
            "as for CIFAR-10",
            "HM: CIFAR-100 is trained alike; the code of their footnote 5 reads it alike",
            "0.5 or less",
        ),
        *(
            row._replace(
                effect=row.effect.replace("allconv-cifar10", "allconv-cifar100").replace(
                    "(measured)", "(measured on CIFAR-10)"
                )
            )
            for row in ALLCONV
            if row.setting != "pictures"
        ),
    ),
    "allconv-imagenet": (
        Difference(
            "network",
            "blocks (3, 4, 6, 3), widths (80, 168, 328, 672): 35.69 million weights",
            '"35.7M", derived from ResNet-34; blocks (5, 5, 6, 6) of ResNet-34\'s own widths have '
            "35.69 million, too",
            "not known: this is no measurement of HM's network",
        ),
        Difference(
            "pictures",
            CROPS + "; tested on the centre crop",
            '"Each image is resized to 224 x 224 pixels with 3 channels"; crops, flips and the '
            "test crop are not stated",
            "1 or less",
        ),
        Difference(
            "stem, last layer, start",
            "7x7 of stride 2 without pooling; fixed, entries N(0, 1/width); small",
            "as for CIFAR-10 where nothing else is said",
            "not known",
        ),
        Difference("weight decay", "0.0001", "stated for CIFAR-10 alone", "1 or less"),
        Difference(
            "machines",
            "one, or several that wait for each other",
            "six of eight GPUs, which do not wait for each other",
            "not known",
        ),
        ONE_SEED,
    ),
    "allconv-tiny-imagenet": (
        Difference(
            "pictures",
            "200 classes of 64x64 pixels, 89,994 for training, moved by up to 4 pixels, flipped, "
            "by channel moments",
            "ImageNet: 1,000 classes of 224x224 pixels, 1.28 million for training",
            "another task: no error here is comparable with one on ImageNet",
        ),
        Difference(
            "network",
            "a quarter of the widths, (20, 42, 82, 168), of our reading of HM: 2.2 million weights",
            '"35.7M", derived from ResNet-34',
            "not known",
        ),
        Difference(
            "stem",
            "3x3 of stride 2, then stages of 32, 16, 8 and 4 pixels a side",
            "7x7 of stride 2 and a first stage of stride 2: 56, 28, 14 and 7 pixels",
            "in proportion the last stage would have 2 pixels a side, and err more",
        ),
        Difference(
            "length",
            "16 epochs of 703 steps of 128: 8 stairs of 0.94, to 0.61 of the first rate",
            "700,000 steps of 256, 140 epochs: 70 stairs, to 0.013 of it",
            "not known: has a higher error than a training that ends with a small rate",
        ),
        Difference("weight decay", "0.0001", "stated for CIFAR-10 alone", "1 or less"),
    ),
    "allcnn-cifar10": ALLCNN,
    "allcnn-cifar100": (
        Difference(
            "what is reported",
            "33.71 %, which Huang et al. (Table 2) and He et al. 2016 (Table 4) print of All-CNN",
            "HM print 32.39 %, the Highway network's in Table 2 of Huang et al.: likely a slip of "
            "the row",
            "1.3",
        ),
        Difference(
            "augmentation",
            "moved by up to 5 pixels, flipped",
            "Table 4 of He et al. 2016 lists 33.71 % among results with moderate augmentation; "
            "Springenberg et al. were not at hand",
            "2 or more lower than without",
        ),
        *(row for row in ALLCNN if row.setting != "pictures"),
        Difference("pixels", *ALLCNN[0][1:]),
    ),
    "allcnn-imagenet": (
        Difference("training crops", CROPS, UNREAD, "1 or less"),
        Difference("start", "normal, variance 2/inputs", UNREAD, "1 or less"),
        Difference("test", "the centre crop", "the centre crop, as remembered", "none"),
        ONE_SEED,
    ),
    "resnet-cifar10": (
        Difference(
            "what is reported",
            "6.61 %, the mean of five runs, ± 0.16",
            "HM print the best of the five, 6.43 %",
            "0.18",
        ),
        Difference(
            "warm-up",
            "400 steps at rate 0.01",
            "0.01 until the training error is below 80 %, about 400 steps",
            "none",
        ),
        PIXELS,
        KERNELS_DECAY,
        MOMENTS,
    ),
    "resnet-cifar100": (
        Difference(
            "what is reported",
            "25.16 %, the median of five runs, which spreads like the mean of three",
            "ResNet-164 of He et al. 2016; HM cite He et al. 2015, who have no CIFAR-100",
            "none",
        ),
        Difference(
            "momentum, decay",
            "rate outside the velocity; all weights decay",
            "the authors' public code, in Torch, does both",
            "none",
        ),
        PIXELS,
        MOMENTS,
    ),
    "resnet-imagenet": (
        Difference(
            "what is reported",
            "23.0 %, by the centre crop",
            "HM print 19.38 %, of scores averaged over several sizes; Table 5 of He et al. 2016 "
            "has 23.0 for one crop of 224x224",
            "3.6",
        ),
        DROPS,
        KERNELS_DECAY,
        MOMENTS,
        Difference(
            "shifts of colour",
            "along the principal components that Torch's public code has",
            "those of Krizhevsky et al., of the training pictures",
            "0.1 or less",
        ),
        ONE_SEED,
    ),
    "densenet-cifar10": DENSENET,
    "densenet-cifar100": DENSENET,
    "alexnet-imagenet": (
        Difference(
            "test",
            "ten crops of a square of 256 pixels, mean of softmax",
            "the same; one crop errs 42.55 % for 40.42 %, as public code of the authors says",
            "none",
        ),
        Difference(
            "start",
            "pixels 0 to 255 less the mean of each channel; weights of deviation 0.01",
            "the same, less the mean of each pixel",
            "with pixels over their deviation the first logits of two pictures differ by 0.0004, "
            "with bytes by 0.018 (measured); whether the loss is below 6.8 within 2,000 steps was "
            "not run",
        ),
        DROPS,
        Difference(
            "rate of biases",
            "that of weights; they do not decay",
            "twice that of weights in the authors' code, as remembered",
            "0.5 or less",
        ),
        Difference(
            "shifts of colour",
            "along the principal components that Torch's public code has",
            "those of the training pictures",
            "0.1 or less",
        ),
        ONE_SEED,
    ),
    "skip-length": (
        Difference(
            "training",
            "that of He et al. 2015 for 56 layers: 64,000 steps of 128, rate 0.1, divided by 10 at "
            "half and at three quarters; no warm-up, which they have for 110 layers",
            "LY state none",
            "not known",
        ),
        Difference(
            "pictures",
            "50,000, moved by up to 4 pixels and flipped, by channel moments",
            "LY state none; He et al. the same but for the mean of each pixel",
            "0.1 or less",
        ),
        Difference(
            "networks",
            "ResNet-56; skips over single layers, ReLU(x + BN(C x)); none",
            "56 layers; where normalization stands is not stated",
            "not known",
        ),
        Difference(
            "weight decay",
            "0.0001, in convolutions and the last layer",
            "LY state none",
            "0.2 or less",
        ),
    ),
}


def table(name: str) -> str:
    """Return the differences of a cell as a table in Markdown, one line a setting."""
    head = ("setting", "here", "source", "likely effect")
    cells = [head, ("---",) * len(head), *DIFFERENCES[name]]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)
