"""Sentences of HM about the cells of their Table 2, word for word, and what is measured of them."""

from collections.abc import Mapping

from pipelines.claims._arms import ArmBound, ReportedArm
from pipelines.measurement.quotation import NUMBER, SLIP, Quotation
from pipelines.recipes.catalog import RECIPES

ALLCNN = "All-CNN 7.25 32.39 41.2 (all-convolutional, dropout, extra data processing)"
OURS = "Ours 6.38 24.64 35.29 (all-convolutional)"
RESNET = "ResNet 6.43 25.16 19.38"
DENSENET = "DenseNet 3.74 19.25 N/A"
UNSTATED = {  # what section 4.1 leaves open
    "network, rate, its drops, batch, momentum, decay": True,
    "length of training": False,
    "pictures: how far they move, how they are standardized": False,
    "which checkpoint is reported, and on which test pictures": False,
    "of how many models it is the best": False,
}
OTHERS = {"everything but the error, which is another paper's": False}


def quote_row(
    row: str, bound: ArmBound | ReportedArm, note: str = "", needs: Mapping[str, bool] = OTHERS
) -> Quotation:
    """Return a row of HM Table 2, of which one number is measured."""
    return Quotation(
        words=row, form=NUMBER, place="HM Table 2", needs=needs, bounds=(bound,), note=note
    )


def quote_untested(words: str, place: str, note: str) -> Quotation:
    """Return a sentence that no number of ours can decide, with the reason."""
    return Quotation(words=words, place=place, note=note)


def quote_untested_row(row: str, note: str) -> Quotation:
    """Return a row of HM Table 2 that no number of ours can decide, with the reason."""
    return Quotation(words=row, form=NUMBER, place="HM Table 2", note=note)


def reported(recipe: str, runs: int = 1) -> ReportedArm:
    """Return the bound on the error that a recipe has as reported, of so many runs."""
    metric, error_pct = next(iter(RECIPES[recipe]["paper"].reported.items()))
    return ReportedArm(metric, reported=error_pct, runs=runs)


CIFAR10 = reported("allconv-cifar10-footnote5")
ALLCONV_CIFAR10 = (
    Quotation(
        words="Despite its simplicity, our architecture reaches 6.38% top-1 classification error "
        "on the CIFAR10 benchmark (with standard data augmentation).",
        place="HM section 1.1, the error",
        needs=UNSTATED,
        bounds=(CIFAR10,),
    ),
    quote_row(OURS, CIFAR10, "the 6.38 of CIFAR-10", UNSTATED),
    Quotation(
        words="The model reaches peak performance at around 50k steps, which takes about 24h on "
        "a single NVIDIA Tesla K40 GPU.",
        place="HM section 4.1, when it is best",
        needs=UNSTATED,
        bounds=(ArmBound("best_half_seen_test_step", at_least=40_000, at_most=60_000),),
        note='"around 50k" is read as 40,000 to 60,000, of 56,000 steps; the hours are not tested',
    ),
    Quotation(
        words="Architecture for CIFAR10/100 (55 convolutions, 13.5M parameters)",
        place="HM Table 1",
        bounds=(ArmBound("parameters", at_least=13.45e6, at_most=13.55e6, every=True),),
        broken=SLIP,
        note="13,538,736 weights of 55 convolutions as the table has them",
    ),
    quote_untested(
        "An interesting aspect of our model is that despite its massive size of 13.59 million "
        "trainable parameters, the model does not seem to overfit too quickly even though the data "
        "set size is 50000.",
        "HM section 4.1, its weights",
        "Table 1 as built here has 13,538,736; with projections and a bias in every convolution it "
        "has 13,589,248. 'too quickly' names no number: the card's figure has both curves",
    ),
    quote_untested(
        "The initial learning rate is 0.05, which drops by a factor 10 and 30000 and 50000 steps.",
        "HM section 4.1, the rate",
        "a setting, which the recipe has; the first 'and' stands for 'at'",
    ),
    quote_untested(
        "This is competitive with the best residual network reported in He et al. (2015), which "
        "achieved 6.43%. Moreover, it improves upon the performance of the previous best "
        "all-convolutional network, 7.25%, achieved by Springenberg et al. (2014).",
        "HM section 1.1, other networks",
        "a comparison of numbers of three papers, of one run or the best of five; "
        "allconv-beats-allcnn trains two of them side by side",
    ),
)
ALLCONV_CIFAR100 = (
    quote_row(OURS, reported("allconv-cifar100-footnote5"), "the 24.64 of CIFAR-100", UNSTATED),
)
ALLCONV_IMAGENET = (
    quote_untested(
        "The original model achieved 25.03% classification error. Our derived model has 35.7M "
        "trainable parameters.",
        "HM section 4.2, the model",
        "widths and blocks are not stated: two networks of 35.69 million weights fit",
    ),
    quote_untested(
        "Despite this issue, our model still reached 35.29% top-1 classification error on the test "
        "set (50000 data points), and 14.17% top-5 test error after 700,000 steps (about one week "
        "of training). While no longer state-of-the-art, this performance is significantly better "
        "than the 40.7% reported by Krizhevsky et al. (2012), as well as the best "
        "all-convolutional architecture by Springenberg et al. (2014).",
        "HM section 4.2, the errors",
        "the network, its pictures and its decay are not stated",
    ),
    quote_untested_row(OURS, "the 35.29 of ImageNet: the network is not stated"),
)
ALLCNN_CIFAR10 = (quote_row(ALLCNN, reported("allcnn-cifar10-whitened"), "the 7.25 of CIFAR-10"),)
ALLCNN_CIFAR100 = (
    quote_untested_row(
        ALLCNN,
        "likely a slip of the row: 32.39 is the Highway network's in Table 2 of Huang et al. "
        "(arXiv 1608.06993), which has All-CNN with 33.71, as has Table 4 of He et al. 2016; "
        "Springenberg et al. were not at hand",
    ),
)
ALLCNN_IMAGENET = (quote_untested_row(ALLCNN, "the 41.2 of ImageNet: its price is on the card"),)
RESNET_CIFAR10 = (
    quote_untested_row(
        RESNET,
        "the 6.43 of CIFAR-10 is the best of five runs of He et al., whose mean is 6.61: one run "
        "is not compared with the best of five",
    ),
)
RESNET_CIFAR100 = (
    quote_row(
        RESNET,
        reported("resnet-cifar100", runs=3),
        "the 25.16 of CIFAR-100, a median of five runs of He et al. 2016",
    ),
)
RESNET_IMAGENET = (
    quote_untested_row(
        RESNET,
        "the 19.38 of ImageNet is of scores averaged over several sizes, which is not done here",
    ),
)
DENSENET_CIFAR10 = (quote_row(DENSENET, reported("densenet-cifar10"), "the 3.74 of CIFAR-10"),)
DENSENET_CIFAR100 = (quote_row(DENSENET, reported("densenet-cifar100"), "the 19.25 of CIFAR-100"),)
ALEXNET_IMAGENET = (
    quote_untested(
        "this performance is significantly better than the 40.7% reported by Krizhevsky et al. "
        "(2012)",
        "HM section 4.2",
        "a number of another paper, of one network and ten crops",
    ),
)
