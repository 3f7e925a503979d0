"""Where the figure and the theorems of the work on embedded ensembles are reproduced; it prints no numbers."""

from murmuration.studies.papers.published import Item, Work

PANELS = "murmur reproduce embedded --parts panels"
THEOREMS = "murmur reproduce embedded --parts theorems"
LARGER = "murmur reproduce embedded --parts panels --data mnist --train 2000 --out runs/embedded-mnist"
WORK = Work(
    "embedded",
    "Embedded ensembles: infinite width limit and operating regimes",
    "Velikanov, Kail, Anokhin, Vashurin, Panov, Zaytsev, Yarotsky (AISTATS 2022), arXiv 2202.12297",
    (
        Item("panel a", "ensemble test accuracy against the number of models, by width", PANELS, ("P1",), LARGER),
        Item("panel b", "mean member test accuracy", PANELS, ("P1", "P4"), LARGER),
        Item("panel c", "mean member training accuracy", PANELS, ("P2", "P3"), LARGER),
        Item("panel d", "accuracy against the number of parameters", PANELS, (), LARGER),
        Item("theorem 1", "Gaussian outputs; independence and its breakdown", THEOREMS, ("theorem 1.1", "theorem 1.2")),
        Item("theorem 2", "deterministic kernels; those between members", THEOREMS, ("theorem 2.1", "theorem 2.2")),
        Item("assumption A3", "tangent kernels constant in training", THEOREMS, ("assumption A3",)),
        Item("gamma", "which step of the shared weights suits which regime", PANELS, ("P5", "P6")),
        Item("regimes", "the switch between independent and collective", PANELS, ("P7",)),
    ),
)
