"""Networks with frozen parameters, and a little data for them."""

import torch
from torch import Tensor, nn

import murmuration as mm

X = torch.randn(96, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long() + (X[:, 1] > 0.3).long()
PLAN = mm.Plan(members=2, epochs=2, batch_size=16, posthoc=None, engine="loop")


class BodyAndHead(nn.Module):
    """A body whose first layer is frozen, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 3)
        self.body[0].requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


COMMON = BodyAndHead()


def same_body() -> nn.Module:
    """Frozen values that all members have in common."""
    net = BodyAndHead()
    net.body[0].load_state_dict(COMMON.body[0].state_dict())
    return net
