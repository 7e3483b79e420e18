"""Numbers that HM, R, B and LY report: each with its place in print, and what it measures.

Numbers that a claim or a recipe states of itself are read there; this table adds its citation and
what it does not state. Pages are given where they were looked up. R and B print none of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelines.recipes.catalog import get_recipe

HM = "M. Hardt, T. Ma: Identity Matters in Deep Learning. arXiv 1611.04231, 2016"
LY = (
    "Y. Li, Y. Yuan: Convergence Analysis of Two-layer Neural Networks with ReLU Activation. "
    "arXiv 1705.09886, 2017"
)
HE = (
    "K. He, X. Zhang, S. Ren, J. Sun: Deep Residual Learning for Image Recognition. "
    "arXiv 1512.03385, 2015"
)
HE_2016 = (
    "K. He, X. Zhang, S. Ren, J. Sun: Identity Mappings in Deep Residual Networks. "
    "arXiv 1603.05027, 2016"
)
SPRINGENBERG = (
    "J. T. Springenberg, A. Dosovitskiy, T. Brox, M. Riedmiller: Striving for Simplicity: The All "
    "Convolutional Net. arXiv 1412.6806, 2014"
)
HUANG = (
    "G. Huang, Z. Liu, L. van der Maaten, K. Q. Weinberger: Densely Connected Convolutional "
    "Networks. arXiv 1608.06993, 2016"
)
KRIZHEVSKY = (
    "A. Krizhevsky, I. Sutskever, G. E. Hinton: ImageNet Classification with Deep Convolutional "
    "Neural Networks. Advances in Neural Information Processing Systems 25, 2012"
)

Place = tuple[str, str]  # a citation, and where in that document

TABLE_2: Place = (HM, "HM Table 2, section 4.1")
IN_TEXT: Place = (HM, "HM section 4.2")


@dataclass(frozen=True, kw_only=True)
class Reported:
    """Numbers of one claim or recipe, as printed."""

    name: str
    """A claim or a recipe, whose own `reported` belongs here too."""
    part_of: str = ""
    """The claim, where the name is not one."""
    places: tuple[Place, ...]
    """Places where the numbers are printed: the source, then where it has them from."""
    setting: str
    n: int | None = None
    """Runs behind each number, if that is said."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """Numbers that neither claim nor recipe states, under the names that our runs give them."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The setting of a claim that has no paper scale."""
    trained_as: tuple[str, ...] = ()
    """Recipes that the claim trains under other names, and that state the same numbers."""

    @property
    def claim(self) -> str:
        return self.part_of or self.name

    def of_recipe(self, name: str) -> "Reported":
        """Return the row of a recipe that the claim trains, which says itself what it is."""
        setting = get_recipe(name, "paper").source
        return Reported(
            name=name, part_of=self.claim, places=self.places, setting=setting, n=self.n
        )


PICTURES = "Padded, cropped and flipped pictures"

CLAIMED = (
    Reported(
        name="allconv-cifar10",
        places=(TABLE_2,),
        trained_as=(
            *("allconv-cifar10-footnote5", "allconv-cifar10-shift4"),
            *("allconv-cifar10-tensorfloat32", "allconv-cifar10-leaky"),
        ),
        setting=f"55 convolutions of HM Table 1, without normalization; {PICTURES.lower()}",
        numbers={"parameters": 13.5e6},
    ),
    Reported(
        name="later-habits",
        places=(TABLE_2,),
        setting="As allconv-cifar10, which is the arm that the others are compared with",
    ),
    Reported(
        name="allconv-cifar100",
        places=(TABLE_2,),
        trained_as=("allconv-cifar100-footnote5", "allconv-cifar100-leaky"),
        setting="The network of CIFAR-10 with 100 classes, trained alike",
        numbers={"parameters": 13.5e6},
    ),
    Reported(
        name="allconv-imagenet",
        places=((HM, "HM section 4.2; top-1 also Table 2"),),
        setting="A variant of ResNet-34 without normalization; 50,000 pictures, 700,000 steps of "
        "6 machines that do not wait for each other, 8 GPUs each",
        numbers={"parameters": 35.7e6},
    ),
    Reported(
        name="allcnn-cifar10",
        places=(TABLE_2, (SPRINGENBERG, "Springenberg et al., All-CNN with augmentation")),
        trained_as=("allcnn-cifar10-whitened",),
        setting="All convolutions, dropout; whitened, shifted and flipped pictures",
    ),
    Reported(
        name="allcnn-cifar100",
        places=(TABLE_2, (HUANG, "Huang et al. Table 2, in the row of the Highway network")),
        trained_as=("allcnn-cifar100-whitened",),
        setting="All convolutions, dropout. HM print 32.39 %, likely a slip of the row: All-CNN "
        "has 33.71 % there, and in Table 4 of He et al. 2016",
        numbers={"printed_by_hm_test_error_pct": 32.39},
    ),
    Reported(
        name="allcnn-imagenet",
        places=(TABLE_2, (SPRINGENBERG, "Springenberg et al., upscaled All-CNN-B")),
        setting="All convolutions, wider and deeper than on CIFAR; validation pictures",
    ),
    Reported(
        name="resnet-cifar10",
        places=(TABLE_2, (HE, "He et al. Table 6, p. 7")),
        setting=f"ResNet-110: 5 runs, of which HM print the best. {PICTURES}",
        n=5,
        numbers={"sd/test_error_pct": 0.16, "parameters": 1.7e6},
    ),
    Reported(
        name="resnet-cifar100",
        places=(TABLE_2, (HE_2016, "He et al. 2016 Table 4")),
        setting="ResNet-164 with the original unit, the median of 5 runs; HM name He et al. "
        f"2015, who have no number on CIFAR-100. {PICTURES}",
        n=5,
        numbers={"preactivation_test_error_pct": 24.33, "parameters": 1.7e6},
    ),
    Reported(
        name="resnet-imagenet",
        places=(TABLE_2, (HE, "He et al. Table 4, p. 6")),
        setting="ResNet-152, a single one; validation pictures: one crop in Table 5 of He et al. "
        "2016, scores averaged over several sizes in HM",
    ),
    Reported(
        name="resnet34-imagenet",
        part_of="resnet-imagenet",
        places=(IN_TEXT, (HE, "He et al. Table 2, p. 5; as ResNet-34 A Table 3, p. 6")),
        setting="34 layers, shortcuts padded with zeros; ten crops of validation pictures",
    ),
    *(
        Reported(
            name=name,
            places=(TABLE_2, (HUANG, "Huang et al. Table 2")),
            setting=f"L = 100, k = 24, without bottlenecks. {PICTURES}",
            numbers={"parameters": 27.2e6},
        )
        for name in ("densenet-cifar10", "densenet-cifar100")
    ),
    Reported(
        name="alexnet-imagenet",
        places=(IN_TEXT, (KRIZHEVSKY, "Krizhevsky et al. Table 2, section 6")),
        setting="One network; ten crops of validation pictures of ILSVRC 2012",
    ),
    Reported(
        name="skip-length",
        places=((LY, "LY Table 1"),),
        trained_as=("skip56-two-layer", "skip56-single", "skip56-vanilla"),
        setting="Three networks of 56 layers on CIFAR-10, means of 5 runs; He et al. 2015 print "
        "the same number for ResNet-56, with skips over two layers, in Table 6, p. 7",
        n=5,
    ),
    Reported(
        name="one-point-convexity",
        places=((LY, "LY Theorem 3.3, Figures 4 and 5"),),
        setting="The least ratios of <-grad, W* - W> and of two of its parts to |W* - W|^2: "
        "bounds, not measurements",
        numbers={"ratio": 0.03, "angle_share": -1.3, "length_share": -0.085},
        params={"potential": 0.1},
    ),
    Reported(
        name="two-phases",
        places=((LY, "LY Figure 8"),),
        setting="The inner product <-grad, W* - W> becomes positive at about this iteration, read "
        "off the figure; how W is made is not stated",
        numbers={"figure_8_iteration": 15},
        params={"d": 1500, "norm": 0.15, "frobenius": 5, "batch_size": 300, "learning_rate": 1e-4},
    ),
    Reported(
        name="teacher-student",
        places=((LY, "LY section 5.2, Figure 7"),),
        setting="ResLink, the network with the identity, on samples of a teacher of its own form",
        n=5,
    ),
    Reported(
        name="zero-init",
        places=((LY, "LY section 5.4"),),
        setting="MNIST, 5 blocks of 784 units with the identity and ReLU, cross entropy; "
        "started from zeros and at random",
        n=5,
    ),
    Reported(
        name="digit-pairs",
        places=((LY, "LY section 5.5"),),
        setting="MNIST, two digits told apart by a threshold on f(x, W), at W = 0 and at a W of "
        "norm 0.6: 0 against 1, and the mean over all 45 pairs",
    ),
)
TABLE = tuple(
    each for row in CLAIMED for each in (row, *(row.of_recipe(name) for name in row.trained_as))
)
