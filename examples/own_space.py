"""A coupling space of your own: members repel each other on probe inputs far from the data.

A space says which features of the members are compared. Here they are the class probabilities on fixed random inputs,
drawn wider than the training inputs, so that members disagree where there are no examples.

    python examples/own_space.py
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

import murmuration as mm


@dataclass(frozen=True)
class ProbeSpace(mm.Space):
    """Class probabilities on random inputs, (m, 1, probes * K)."""

    probes: int = 64
    width: float = 3.0  # of the probes, in standard deviations of the training inputs
    inputs: Tensor | None = field(default=None, repr=False, compare=False)  # set by `prepare`

    def prepare(self, x: Tensor) -> "ProbeSpace":
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(self.probes, *x.shape[1:], generator=generator)
        return replace(self, inputs=x.mean(0) + self.width * x.std(0) * noise)

    def features(self, inputs: mm.SpaceInputs) -> Tensor:
        members = len(inputs.outputs)
        outputs = inputs.run(inputs.weights, self.inputs.expand(members, *self.inputs.shape))  # (m, probes, K)
        return outputs.softmax(-1).flatten(1).unsqueeze(1)


def main(quick: bool = False) -> dict[str, float]:
    """The mutual information on uniform noise, with and without the repulsion."""
    data = mm.open_data("two-moons")
    far = torch.rand(500, 2, generator=torch.Generator().manual_seed(1)) * 12 - 6
    repulsion = mm.Repulsion(ProbeSpace(bandwidth="rde"), weight=0.05)
    recipes = {"deep-ensemble": mm.make_recipe("deep-ensemble"), "probes": mm.Recipe("probes", coupling=repulsion)}
    found = {}
    for name, recipe in recipes.items():
        ensemble = mm.fit("mlp", data, recipe=recipe, members=3 if quick else 5, epochs=20, seed=0)
        found[name] = float(ensemble.predict(far).mutual_information.mean())
        accuracy = mm.score(ensemble.predict(data.test), data.test.y)["accuracy"]
        print(f"{name:14} accuracy {accuracy:.3f}, mutual information far from the data {found[name]:.3f}")
    return found


if __name__ == "__main__":
    main()
