"""Your own network and your own tensors: M of them, fast, in three lines; then the noise split from the doubt.

python examples/02_own_network.py
"""

import torch
from torch import nn

import murmuration as mm

NOISE = 0.2  # standard deviation of the measurement; the ensemble must find it


def own_data(examples: int = 400) -> tuple[torch.Tensor, torch.Tensor]:
    """y = sin(2 x) + noise, seen only for x in [-2, 2]."""
    generator = torch.Generator().manual_seed(0)
    x = 4 * torch.rand(examples, 1, generator=generator) - 2
    return x, torch.sin(2 * x) + NOISE * torch.randn(examples, 1, generator=generator)


def own_net() -> nn.Module:
    """Two outputs a target: a mean, and a raw value whose softplus is the noise."""
    return nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))


def main(quick: bool = False) -> dict[str, float]:
    data = mm.open_data(own_data())
    ensemble = mm.fit(own_net, data, members=3 if quick else 8, epochs=60 if quick else 200)
    near, far = (torch.linspace(a, b, 50).unsqueeze(1) for a, b in ((-2, 2), (4, 6)))
    inside, outside = ensemble.predict(near), ensemble.predict(far)

    noise = inside.aleatoric_var.sqrt().mean().item()
    doubt_inside, doubt_outside = (p.epistemic_var.sqrt().mean().item() for p in (inside, outside))
    print(
        f"noise found {noise:.2f} (truth {NOISE}); doubt {doubt_inside:.2f} where data was, {doubt_outside:.2f} beyond"
    )
    return {"noise": noise, "doubt_inside": doubt_inside, "doubt_outside": doubt_outside}


if __name__ == "__main__":
    main()
