"""Published results of Bayesian convolutional networks.

Validation accuracy in percent. The program behind the numbers computed its KL from parameters that the forward pass did
not use, and its table of uncertainty is most likely a variance over images, not over weights: equal numbers are no
reproduction.
"""

from murmuration.studies.papers.published import Item, Work, numbers_of

COMMAND = "murmur reproduce bayes-cnn"
FULL = f"{COMMAND} --profile paper --data cifar-10-batches-bin --device cuda --out runs/bayes-cifar10"
ACCURACY, PRUNING, UNCERTAINTY = (f"{COMMAND} --parts {part}" for part in ("accuracy", "pruning", "uncertainty"))
FULL_ACCURACY, FULL_PRUNING, FULL_UNCERTAINTY = (
    f"{FULL} --parts {part}" for part in ("accuracy", "pruning", "uncertainty")
)
DATA = ("MNIST", "CIFAR-10", "CIFAR-100")
WORK = Work(
    "bayes-cnn",
    "A comprehensive guide to Bayesian convolutional neural network with variational inference",
    "Shridhar, Laumann, Liwicki (2019), arXiv 1901.02731",
    (
        Item(
            "accuracy",
            "Gaussian weights beside deterministic ones: LeNet-5, AlexNet",
            ACCURACY,
            ("B1", "B2"),
            FULL_ACCURACY,
            "a GPU: AlexNet, 100 epochs, hours",
        ),
        Item("half", "networks of half the filters", ACCURACY, ("B3",), FULL_ACCURACY),
        Item("pruning", "L1, then weights at zero are dropped", PRUNING, ("B4",), FULL_PRUNING),
        Item(
            "uncertainty",
            "aleatoric and epistemic uncertainty; both fall as training accuracy rises",
            UNCERTAINTY,
            ("B5",),
            FULL_UNCERTAINTY,
            note="any run with a trajectory: `murmur explore RUN uncertainty`",
        ),
        Item("super-resolution", "Bayesian super-resolution", "murmur superres train", note="no published numbers"),
        Item("GAN", "a GAN whose discriminator is Bayesian", "python examples/bayesian_gan.py", note="no numbers"),
    ),
    (
        *numbers_of(
            "accuracy",
            DATA,
            {
                "bayes-alexnet": "99 73 36",
                "point-alexnet": "99 73 38",
                "bayes-softplus": "98 69 31",
                "point": "98 68 33",
                "bayes-alexnet-half": "99 79 38",
            },
        ),
        *numbers_of("pruning", DATA[:2], {"bayes-alexnet": "99 71"}),
        *numbers_of("uncertainty", ("aleatoric", "epistemic"), {"MNIST": "0.0096 0.0026", "CIFAR-10": "0.1920 0.0404"}),
    ),
)
