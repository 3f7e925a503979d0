# %% [markdown]
# # Your own network
#
# Any `nn.Module` on tensors of your own. The example is a curve seen through noise, so that both kinds of uncertainty
# can be checked: the noise is known, and there are inputs far from the data.

# %%
import torch
from torch import nn

import murmuration as mm

generator = torch.Generator().manual_seed(0)
x = 4 * torch.rand(400, 1, generator=generator) - 2
y = torch.sin(2 * x) + 0.2 * torch.randn(400, 1, generator=generator)


def net() -> nn.Module:
    """Two outputs for one target: its mean, and a raw value whose softplus is the noise."""
    return nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))


# %% [markdown]
# A function that builds the network is called once for every member. Data are a pair of tensors or arrays, a `Dataset`,
# a `DataLoader` or a table.

# %%
ensemble = mm.fit(net, (x, y), members=5, epochs=60, seed=0)
ensemble

# %% [markdown]
# ## Noise and doubt
#
# The aleatoric standard deviation should be the noise, 0.2. The epistemic one should be small between -2 and 2, where
# the data are, and grow outside.

# %%
inside, outside = (ensemble.predict(torch.linspace(*ends, 50).unsqueeze(1)) for ends in ((-2, 2), (4, 6)))
noise = float(inside.aleatoric_var.sqrt().mean())
doubt = [float(p.epistemic_var.sqrt().mean()) for p in (inside, outside)]
print(f"noise {noise:.2f} (truth 0.2); doubt {doubt[0]:.2f} near the data, {doubt[1]:.2f} far from them")

# %%
import plotly.graph_objects as go

line = torch.linspace(-5, 5, 200).unsqueeze(1)
low, high = ensemble.predict(line).interval(0.9)
figure = go.Figure()
figure.add_scatter(x=line[:, 0].tolist(), y=low[:, 0].tolist(), line_width=0, showlegend=False)
figure.add_scatter(x=line[:, 0].tolist(), y=high[:, 0].tolist(), fill="tonexty", line_width=0, name="90 % interval")
figure.add_scatter(x=x[:, 0].tolist(), y=y[:, 0].tolist(), mode="markers", marker_size=3, name="data")

# %% [markdown]
# ## One member, one module
#
# `ensemble.member(0)` is a plain network with the weights of the first member. `ensemble.as_module()` is the whole
# ensemble with preparation and calibration, for [services](export.md). More: [outputs of own networks](own-networks.md),
# [frozen parts and weights to begin with](own-weights.md).

# %%
ensemble.member(0)
