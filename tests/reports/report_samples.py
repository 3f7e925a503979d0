"""Reports made up of synthetic records, with the shapes that real runs have."""

import math
from typing import Any

import numpy as np

from murmuration.reports import (
    Cost,
    DataCard,
    Entry,
    Example,
    Field1D,
    Field2D,
    Histogram,
    Parity,
    Reliability,
    Report,
    RiskCoverage,
)

MEMBERS = 8
ANSWERS = {
    "deep-ensemble": ("nothing", "a point", "none", "Adam, keep the end"),
    "forde": ("nothing", "a point", "repulsion of input gradients (KDE)", "Adam, keep the end"),
}


def answers(name: str) -> dict[str, str]:
    return dict(zip(("sharing", "weights", "coupling", "dynamics"), ANSWERS[name], strict=True))


def history(generator: np.random.Generator, epochs: int, floor: float, measure: str) -> list[dict[str, Any]]:
    """Curves that fall to `floor`, with noise that differs between members."""
    rows = []
    for epoch in range(1, epochs + 1):
        fall = math.exp(-epoch / 6)
        noise = 0.02 * generator.standard_normal(MEMBERS)
        second = 1 - 0.7 * fall - 0.02 + noise / 5 if measure == "val_accuracy" else 3 + 9 * fall + 8 * noise
        row = {
            "epoch": epoch,
            "train_loss": 2.2 * fall + 0.02 + noise**2 * 4,
            "val_nll": floor + 2.0 * fall + np.abs(noise),
            measure: second,
        }
        both = {"val_nll": floor * 0.8 + 2.0 * fall, measure: float(np.mean(second)) * 1.005}
        rows.append({**{k: v.tolist() if hasattr(v, "tolist") else v for k, v in row.items()}, "ensemble": both})
    return rows


def agreement(generator: np.random.Generator, centre: float) -> np.ndarray:
    raw = centre + 0.012 * generator.standard_normal((MEMBERS, MEMBERS))
    matrix = np.clip((raw + raw.T) / 2, 0, 1)
    np.fill_diagonal(matrix, 1.0)
    return matrix


def classification_entry(name: str, lean: float, seed: int) -> Entry:
    generator = np.random.default_rng(seed)
    promised = np.array([0.23, 0.34, 0.45, 0.55, 0.65, 0.75, 0.85, 0.97])
    observed = np.clip(promised - lean + 0.02 * generator.standard_normal(8), 0, 1)
    count = np.array([2, 4, 6, 9, 11, 16, 31, 281])
    reach = 1.96 * np.sqrt(observed * (1 - observed) / count + 0.25 / count**2)
    coverage = np.arange(1, 361) / 360
    edges = np.linspace(0, 2, 21)
    right = np.round(290 * np.exp(-edges[:-1] * 4) * 0.35)
    wrong = np.round(6 * np.exp(-((edges[:-1] - 0.9) ** 2) * 3))
    return Entry(
        name=name,
        answers=answers(name),
        scores={
            "accuracy": (0.981 - lean / 10, 0.961 - lean / 10, 0.992 - lean / 10),
            "nll": (0.0712 + lean, 0.0511 + lean, 0.0963 + lean),
            "ece": (0.0142 + lean / 3, 0.0093, 0.0271 + lean / 3),
            "brier": (0.0312 + lean / 5, 0.0203, 0.0455 + lean / 5),
            "error_auroc": (0.962 - lean, 0.921 - lean, 0.985 - lean),
            "aurc": (0.00213 + lean / 20, 0.001, 0.0041 + lean / 20),
            "mutual_information": (0.0451 - lean / 4, 0.0388 - lean / 4, 0.0522 - lean / 4),
        },
        reliability=Reliability(
            promised, observed, np.clip(observed - reach, 0, 1), np.clip(observed + reach, 0, 1), count
        ),
        risk_coverage=RiskCoverage(coverage, 0.019 * coverage**6 + lean / 8 * coverage**3),
        histograms=(
            Histogram("entropy", edges, {"right": right, "wrong": wrong}),
            Histogram("mutual_information", edges / 4, {"right": right, "wrong": wrong[::-1]}),
        ),
        cost=Cost(
            seconds=41.2 if name == "deep-ensemble" else 97.5,
            parameters=222_160,
            ms_per_prediction=0.0312,
            members=8,
        ),
        history=history(generator, 30, 0.08 + lean, "val_accuracy"),
        agreement=agreement(generator, 0.955 - lean),
        members=[
            {"accuracy": 0.965 + 0.004 * g, "nll": 0.12 - 0.01 * g, "ece": 0.02}
            for g in generator.standard_normal(MEMBERS)
        ],
        frozen={3: "loss was not finite at epoch 12"} if name == "forde" else {},
    )


def digit_images(count: int) -> np.ndarray:
    """Real 8 by 8 digits as bytes."""
    from sklearn.datasets import load_digits

    return (load_digits().images[:count] * 15.9375).astype(np.uint8)


def classification() -> Report:
    digits = tuple(str(digit) for digit in range(10))
    images = digit_images(8)
    examples = tuple(
        Example(
            label=str(place % 10),
            prediction=str(place if place % 3 else 8),
            image=images[place],
            measures={
                "confidence": 0.41 + place / 50,
                "entropy": 1.31 - place / 20,
                "mutual_information": 0.52 - place / 30,
            },
            votes={str(place): 4, "9": 1} | ({"8": 5} if place % 3 == 0 else {"8": 3}),
            index=17 * place,
        )
        for place in range(8)
    )
    return Report(
        title="Digits: deep ensemble and FoRDE",
        task="classification",
        data=DataCard("digits", "sha256:7b1c9e02a5d4", {"train": 1149, "val": 288, "test": 360}, digits),
        entries=(classification_entry("deep-ensemble", 0.03, 0), classification_entry("forde", 0.0, 1)),
        examples=examples,
        examples_of="forde",
        notes=(
            "The difference in accuracy between deep-ensemble and forde is within noise (p = 0.41).",
            "forde is better calibrated: its ECE is lower by 0.01, beyond noise.",
        ),
        command="murmur compare digits --recipes deep-ensemble,forde --members 8 --epochs 30 --out runs/cmp",
        versions={"murmuration": "0.1.0", "torch": "2.13.0", "python": "3.12.3"},
        seeds=(0,),
        date="2030-01-31 12:00 UTC",
    )


def regression_entry(name: str, spread: float, seed: int) -> Entry:
    generator = np.random.default_rng(seed)
    nominal = np.arange(1, 10) / 10
    observed = np.clip(nominal - spread * np.sin(np.pi * nominal), 0, 1)
    truth = 50 + 20 * generator.standard_normal(200)
    x = np.linspace(-4, 4, 120)
    edges = np.linspace(0, 12, 13)
    return Entry(
        name=name,
        answers=answers(name),
        scores={
            "rmse": (3.21 + spread, 2.84 + spread, 3.66 + spread),
            "nll": (2.51 + spread, 2.38 + spread, 2.67 + spread),
            "crps": (1.72 + spread, 1.55 + spread, 1.9 + spread),
            "coverage_90": (0.9 - spread / 3, 0.86 - spread / 3, 0.94 - spread / 3),
        },
        reliability=Reliability(nominal, observed, observed - 0.05, np.minimum(observed + 0.05, 1), kind="interval"),
        risk_coverage=RiskCoverage(np.arange(1, 201) / 200, 1 + 2 * (np.arange(1, 201) / 200) ** 2 + spread),
        histograms=(
            Histogram(
                "epistemic_std",
                edges,
                {
                    "truth inside the 90 % interval": 40 * np.exp(-edges[:-1] / 3),
                    "outside": 4 * np.exp(-((edges[:-1] - 6) ** 2) / 9),
                },
            ),
        ),
        cost=Cost(seconds=12.0, parameters=36_000, ms_per_prediction=0.004, members=8),
        history=history(generator, 20, 2.3, "val_rmse"),
        agreement=agreement(generator, 0.9),
        members=[{"rmse": 3.6 + 0.1 * g, "nll": 2.8} for g in generator.standard_normal(MEMBERS)],
        parity=Parity(truth, truth + 3 * generator.standard_normal(200), np.full(200, 3.0)),
        field=Field1D(
            x,
            np.sin(x),
            np.full(120, 0.15),
            0.05 + 0.12 * np.maximum(np.abs(x) - 2, 0) ** 1.5,
            np.linspace(-2, 2, 40),
            np.sin(np.linspace(-2, 2, 40)) + 0.15 * generator.standard_normal(40),
        ),
    )


def regression() -> Report:
    generator = np.random.default_rng(5)
    examples = tuple(
        Example(
            label=f"{40 + place}.0",
            prediction=f"{43.1 + place:.1f}",
            row={
                "cement (kg/m³)": 540.0 - 20 * place,
                "water (kg/m³)": 162.0,
                "age (days)": 28 * (place + 1),
                "slag (kg/m³)": 0.0,
                "plant": "north",
                "ash (kg/m³)": 12.25,
                "coarse aggregate (kg/m³)": 1040.0,
                "fine aggregate (kg/m³)": 676.0,
            },
            measures={"total_std": 6.2 - place / 5, "epistemic_std": 4.1, "aleatoric_std": 4.65},
            member_predictions=43.1 + place + 4 * generator.standard_normal(MEMBERS),
            index=place,
        )
        for place in range(4)
    )
    return Report(
        title="Concrete strength",
        task="regression",
        data=DataCard("concrete.csv", "sha256:11aa", {"train": 659, "val": 165, "test": 206}, target="strength (MPa)"),
        entries=(regression_entry("deep-ensemble", 0.08, 2), regression_entry("forde", 0.02, 3)),
        examples=examples,
        examples_of="forde",
        notes=("forde keeps its promises better: its 90 % intervals held the truth 89 % of the time.",),
        command="murmur compare concrete.csv --target strength --recipes deep-ensemble,forde",
        versions={"murmuration": "0.1.0"},
        seeds=(0, 1),
        date="2030-01-31",
    )


def moons() -> Report:
    """A toy in the plane, one recipe, little else."""
    x, y = np.linspace(-2, 3, 50), np.linspace(-1.5, 2, 40)
    plane = np.exp(-((y[:, None] - 0.5 * np.sin(2 * x)[None, :]) ** 2) * 6) * math.log(2)
    generator = np.random.default_rng(0)
    points = generator.uniform((-1.5, -1), (2.5, 1.5), (120, 2))
    labels = (points[:, 1] > 0.5 * np.sin(2 * points[:, 0])).astype(int)
    entry = Entry(
        "single",
        {},
        {"accuracy": (0.95, 0.9, 0.98)},
        field=Field2D(x, y, plane, points=points, labels=labels),
    )
    return Report("Two moons", "classification", DataCard("moons", classes=("lower", "upper")), (entry,))
