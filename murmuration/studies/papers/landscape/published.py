"""The numbers of the paper, and how each of its figures is reproduced.

Most results are figures without numbers. Accuracies of the networks are the authors' as quoted in their notebook and by
re-implementations; disagreements and cosines were read from the plots of public re-implementations, whose inputs are
scaled, and are no more than a hint.
"""

from murmuration.studies.papers.published import Item, Number, Work

SECTION = "section 5"
# Jensen-Shannon divergence on SVHN of five networks each, MediumCNN
SVHN = {"independent": 0.384, "trajectory": 0.153, "random": 0.155, "pca": 0.087, "diagonal": 0.034}
ACCURACY = {"small-cnn": 0.64, "medium-cnn": 0.71, "resnet20": 0.90}
EXPONENT = 0.22
NUMBERS = (
    *(Number(SECTION, group, "Jensen-Shannon divergence on SVHN", value) for group, value in SVHN.items()),
    Number("figure S6", "resnet20, CIFAR-100", "exponent e", EXPONENT),
    *(Number("section 3", net, "test accuracy on CIFAR-10", value) for net, value in ACCURACY.items()),
    Number("section 3", "medium-cnn", "parameters", 971_146),
    Number("appendix B", "same initialisation, same batches (TPU)", "disagreement", 0.0),
    Number("figure 2b", "small-cnn, re-implementation", "disagreement of runs", 0.27, read_off=True),
    Number("figure 3", "medium-cnn, re-implementation", "disagreement of runs", 0.25, read_off=True),
    Number("figure 3", "medium-cnn, re-implementation", "cosine of runs", 0.025, read_off=True),
    Number("figure 3", "resnet20, re-implementation", "disagreement of runs", 0.13, read_off=True),
)
LAPTOP = "murmur reproduce landscape --data cifar-10-batches-bin --out runs/landscape"
PAPER = "murmur reproduce landscape --profile paper"
MEDIUM = f"{PAPER} --out runs/medium"  # one directory for all figures of MediumCNN: parts are added to it
CORE_HOURS = "five MediumCNN, about 3 hours of a core each at 50 GFLOP/s"
RESNET = "a GPU for ResNet20v1, 200 epochs each, or about 14 hours of a core each"
IMAGENET = "GPUs: 160 epochs of 1.3 million images for each of five networks; ImageNet, which cannot be redistributed"


def item(name: str, about: str, parts: str, claims: tuple[str, ...], full: str, needs: str, note: str = "") -> Item:
    """Return a figure whose parts are computed by one command on a laptop, another at full scale."""
    return Item(name, about, f"{LAPTOP} --parts {parts}", claims, f"{full} --parts {parts}", needs, note)


WORK = Work(
    "landscape",
    "Deep ensembles: a loss landscape perspective",
    "Fort, Hu and Lakshminarayanan 2019, arXiv 1912.02757",
    (
        item(
            "figure 2a",
            "cosine of weights along one run and between runs, SmallCNN",
            "similarity",
            ("orthogonal", "one end"),
            f"{PAPER} --net small-cnn --out runs/small",
            "five SmallCNN, about 10 minutes of a core each",
        ),
        item(
            "figure 2b",
            "disagreement along one run and between runs, SmallCNN",
            "similarity",
            ("different functions",),
            f"{PAPER} --net small-cnn --out runs/small",
            "the networks of figure 2a",
        ),
        item(
            "figure 2c",
            "t-SNE of predictions along three runs, SmallCNN",
            "tsne",
            ("clusters",),
            f"{PAPER} --net small-cnn --out runs/small",
            "the networks of figure 2a",
        ),
        item(
            "figure 3",
            "the matrices of figure 2 for ResNet20v1",
            "similarity",
            ("orthogonal", "one end", "different functions"),
            f"{PAPER} --net resnet20 --device cuda --out runs/resnet20",
            RESNET,
        ),
        item(
            "figure 4",
            "t-SNE of predictions with samples of subspaces",
            "tsne",
            ("subspaces stay",),
            MEDIUM,
            CORE_HOURS,
        ),
        item(
            "figure 5",
            "radial plane through two optima: accuracy and agreement",
            "plane",
            ("radial", "similar accuracy", "own directions"),
            MEDIUM,
            CORE_HOURS,
        ),
        item(
            "figure 6",
            "diversity against accuracy, CIFAR-10",
            "trade-off",
            ("diversity at equal accuracy", "equivalent conclusions"),
            MEDIUM,
            CORE_HOURS,
            "MediumCNN here; its other panels are the same with --net small-cnn and with --net resnet20",
        ),
        item(
            "figure 7a",
            "diversity against accuracy, ResNet20v1 on CIFAR-100",
            "trade-off",
            ("diversity at equal accuracy",),
            f"{PAPER} --data cifar-100-binary --net resnet20 --device cuda --out runs/resnet20-100",
            RESNET,
        ),
        item(
            "figure 7b",
            "diversity against accuracy, ResNet50v2 on ImageNet",
            "trade-off",
            ("diversity at equal accuracy",),
            f"{PAPER} --data imagenet --net resnet50 --device cuda --out runs/imagenet",
            IMAGENET,
            "resnet50 is the first version of that network; version 2 normalises before the convolutions",
        ),
        item(
            "figure 8",
            "accuracy and Brier score against ensemble size",
            "sizes",
            ("size", "benefits add up"),
            MEDIUM,
            CORE_HOURS,
        ),
        item(
            "figure 9",
            "accuracy, Brier score and divergence by severity of corruption",
            "sizes",
            ("shift",),
            f"{MEDIUM}-corrupted --cifar-c CIFAR-10-C",
            f"{CORE_HOURS}; the files of CIFAR-10-C",
        ),
        item(
            "figure 10",
            "the panels of figures 8 and 9 for ResNet50v2 on ImageNet-C",
            "sizes",
            ("size", "shift"),
            f"{PAPER} --data imagenet --net resnet50 --device cuda --out runs/imagenet",
            IMAGENET,
            "generated corruptions have the constants of 32 pixels, not those of ImageNet-C",
        ),
        item(
            "figure S1",
            "loss and normalised disagreement on the radial plane",
            "plane",
            ("radial", "similar accuracy"),
            MEDIUM,
            CORE_HOURS,
        ),
        item(
            "figure S2",
            "loss and accuracy along the straight line and a low-loss tunnel",
            "tunnel",
            ("barrier", "tunnel", "functions along the tunnel"),
            MEDIUM,
            CORE_HOURS,
            "constants of the tunnel are not published",
        ),
        item(
            "figure S3",
            "stitched radial view of the tunnel",
            "tunnel",
            ("functions along the tunnel",),
            MEDIUM,
            CORE_HOURS,
        ),
        item(
            "figure S4",
            "initialisation and batch order as sources of diversity, by learning rate",
            "factorial",
            ("initialisation", "batch order", "complementary", "determinism"),
            f"{PAPER} --net small-cnn --out runs/small",
            "96 SmallCNN of 40 epochs, about 16 hours of a core",
            "the learning rates are not published",
        ),
        item(
            "figure S5",
            "cycles of cSG-MCMC chains against vanilla ensembles, ResNet-18",
            "chains",
            ("chains",),
            f"{PAPER} --net resnet18 --device cuda --out runs/chains",
            "a GPU: three chains of 150 epochs and five networks",
            "no plan of the vanilla ResNet-18 is published; with --data cifar-100-binary the other panel",
        ),
        item(
            "figure S6",
            "the curve with one parameter fitted to samples, ResNet20v1 on CIFAR-100",
            "trade-off",
            ("exponent",),
            f"{PAPER} --data cifar-100-binary --net resnet20 --members 2 --device cuda --out runs/exponent",
            f"{RESNET}; two are enough, samples are drawn around one",
        ),
        item(
            SECTION,
            "Jensen-Shannon divergence on SVHN, MediumCNN",
            "sizes",
            ("out of distribution",),
            f"{MEDIUM}-svhn --ood svhn/test.npz",
            f"{CORE_HOURS}; the test images of SVHN",
        ),
    ),
    NUMBERS,
)
