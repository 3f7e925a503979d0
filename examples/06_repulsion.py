# %% [markdown]
# # Repulsion
#
# Members of a deep ensemble are independent, and whether they disagree where there are no data is left to chance. A
# repulsive ensemble adds a force between its members. Five clusters of points in the plane show what that changes.

# %%
import numpy as np
import plotly.graph_objects as go
import torch

import murmuration as mm

data = mm.open_data("five-gaussians")
side = torch.linspace(-12, 12, 41)
grid = torch.cartesian_prod(side, side)
nearest = torch.cdist(grid, data.train.prepared).amin(1)

# %% [markdown]
# `function-rde` repels the members' probabilities, `forde` the directions of their input gradients.

# %%
entropy = {}
for recipe in ("deep-ensemble", "function-rde", "forde-identity"):
    ensemble = mm.fit("mlp", data, recipe=recipe, members=6, epochs=15, seed=0, engine="stacked", posthoc=None)
    entropy[recipe] = ensemble.predict(grid).entropy
    near, far = (entropy[recipe][part].mean() for part in (nearest < 0.5, nearest > 4))
    print(f"{recipe:15} mean entropy {near:.3f} near the data, {far:.3f} far from them")

# %% [markdown]
# The entropy of `function-rde` over the plane. Boundaries between classes widen with the distance from the data.

# %%
heat = go.Heatmap(x=side.tolist(), y=side.tolist(), z=np.flipud(entropy["function-rde"].reshape(41, 41).T).tolist())
go.Figure(heat).update_layout(xaxis_title="first input", yaxis_title="second input")

# %% [markdown]
# On data the gains are small: [the guide](repulsion.md) says when to try it, [the results](results/repulsion.md) what
# was measured.
