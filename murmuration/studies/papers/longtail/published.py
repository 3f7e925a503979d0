"""Published results on CIFAR-10 with a long tail: accuracy in percent on the balanced test split."""

from murmuration.studies.papers.published import Item, Work, numbers_of

COMMAND = "murmur reproduce longtail"
FULL = f"{COMMAND} --profile paper --data cifar-10-batches-bin --device cuda --out runs/longtail-cifar10"
IMBALANCES = ("200", "100", "50", "10")  # examples of the largest class over those of the smallest
WORK = Work(
    "longtail",
    "Long-tailed recognition: re-sampling, losses, transfer",
    "Cui et al. (2019), Cao et al. (2019), Kang et al. (2020), Menon et al. (2021); numbers of logit adjustment with "
    "ResNet-32 as listed by mmpretrain",
    (
        Item("re-sampling", "balanced, square-root and progressive sampling", COMMAND, ("L1",), FULL, "a GPU, hours"),
        Item("losses", "class-balanced, balanced softmax, LDAM", COMMAND, ("L2",), FULL, "a GPU, hours"),
        Item("transfer", "re-trained heads, covariance of common classes", COMMAND, ("L3",), FULL, "a GPU, hours"),
    ),
    tuple(
        numbers_of(
            "losses",
            IMBALANCES,
            {"cross-entropy": "73.08 77.54 81.84 89.36", "balanced-softmax": "76.19 80.26 83.41 90.93"},
        )
    ),
)
