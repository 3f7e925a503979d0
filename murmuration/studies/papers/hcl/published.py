"""Published results of HCL: final average accuracy in percent, task-agnostic."""

from murmuration.studies.papers.published import Item, Work, numbers_of

STREAMS = {  # as the work names them -> the data of each
    "SVHN-MNIST": "SVHN, then MNIST",
    "MNIST-SVHN": "MNIST, then SVHN",
    "Split-MNIST": "five tasks of two digits",
    "Split-CIFAR-10": "five tasks of two classes, features of an EfficientNet",
    "Split-CIFAR-100": "ten tasks of ten classes, features of an EfficientNet",
}
COMMAND = "murmur reproduce hcl"
MNIST = "murmur reproduce hcl --parts streams --data mnist --train 2000 --out runs/hcl-mnist"
WORK = Work(
    "hcl",
    "Task-agnostic continual learning with hybrid probabilistic models",
    "Kirichenko, Farajtabar, Rao, Lakshminarayanan, Levine, Li, Hu, Wilson, Pascanu (2021), arXiv 2106.12772; "
    "numbers as transcribed by Zhu et al. (2022), arXiv 2210.03869, tables 2 and 3",
    (
        Item("final accuracy", "HCL-FR and HCL-GR on five streams", MNIST, ("H1", "H2"), note="Split-MNIST as vectors"),
        Item("forgetting", "functional against generative replay", COMMAND, ("H3",)),
        Item("task detection", "changes of task that nobody announces", f"{COMMAND} --parts detection", ("H4",)),
    ),
    tuple(
        numbers_of(
            "final accuracy",
            tuple(STREAMS),
            {"hcl-fr": "96.38 95.62 90.89 89.44 59.66", "hcl-gr": "93.84 96.04 84.65 80.29 51.64"},
        )
    ),
)
