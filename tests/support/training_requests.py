"""Requests for training, and what a specification decides."""

from typing import Any

from murmuration.training.spec import TrainSpec

REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {  # data, and keywords of `fit` that are flags of the command too
    "digits": ("digits", {}),
    "digits, forde": ("digits", {"recipe": "forde", "members": 3, "epochs": 4, "batch_size": 64}),
    "digits, rank-one": ("digits", {"recipe": "batch-ensemble", "members": 4}),
    "digits, bayes": ("digits", {"recipe": "bayes", "net": "mlp", "lr": 1e-3}),
    "digits, ldam": ("digits", {"likelihood": "ldam", "net": "small-cnn"}),
    "digits, logit-adjusted": ("digits", {"likelihood": "logit-adjusted:tau=0.5"}),
    "digits, experts": ("digits", {"recipe": "ride", "net": "mlp"}),
    "digits, softplus": ("digits", {"link": "softplus", "net": "mlp"}),
    "digits, steps": ("digits", {"steps": 100, "net": "linear"}),
    "moons": ("two-moons", {}),
    "moons, svgd": ("two-moons", {"recipe": "svgd", "net": "mlp:hidden=8", "weight_decay": 0.01}),
    "moons, swag": ("two-moons", {"recipe": "swag", "epochs": 8, "schedule": "constant"}),
    "diabetes": ("diabetes", {}),
    "diabetes, members": ("diabetes", {"recipe": "batch-ensemble", "members": 4}),
    "diabetes, mlp": ("diabetes", {"net": "mlp", "epochs": 3}),
    "diabetes, sgd": ("diabetes", {"optimizer": "sgd", "lr": 0.01}),
    "diabetes, noise": ("diabetes", {"noise_std": 50.0}),
    "diabetes, gaussian": ("diabetes", {"likelihood": "gaussian:outliers=0.05"}),
    "diabetes, mixed": ("diabetes", {"recipe": "mixed", "patience": 5}),
    "iris": ("iris", {"seed": 3, "clip_norm": 1.0}),
    "table": ("TABLE", {"target": "y"}),
    "table, classes": ("TABLE", {"target": "kind", "recipe": "mc-dropout"}),
}


def record(spec: TrainSpec) -> dict[str, Any]:
    """Return everything that a specification decides, as plain values."""
    network = spec.member(0)
    return {
        "recipe": spec.recipe.to_json(),
        "plan": {**spec.plan.to_json(), "trajectory": None, "posthoc": None},
        "likelihood": spec.likelihood.to_json(),
        "data": spec.data.fingerprint,
        "steps": spec.end.step,
        "network": {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()},
        "layers": [type(module).__name__ for module in network.modules()],
    }
