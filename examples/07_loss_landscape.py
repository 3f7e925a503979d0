# %% [markdown]
# # The loss landscape
#
# Why are a few independent networks better than many neighbours of one? Networks are points of a space of weights;
# `murmuration.studies` looks at it, after Fort, Hu and Lakshminarayanan (2019).

# %%
import murmuration as mm
from murmuration import studies

data = mm.open_data("digits")
settings = dict(members=3, epochs=8, trajectory="every-epoch", out="runs/path", posthoc=None, seed=0)
ensemble = mm.fit("mlp", data, **settings)
trajectory = studies.open_trajectory("runs/path")
trajectory.epochs

# %% [markdown]
# ## Runs are far apart
#
# Members end at nearly orthogonal weights, and predict different classes for some inputs although their accuracy is the
# same.

# %%
members = studies.network_similarity(ensemble, data)
print("cosines of the weights\n", members.cosine.round(2))
print("fraction of inputs with different predictions\n", members.disagreement.round(3))

# %% [markdown]
# ## A wall on the straight line
#
# Between two members the training loss rises; along a trained curve it rises less.

# %%
paths = studies.paths_between(ensemble, data, paths=("linear", "bezier"), curve_steps=150)
for name in ("linear", "bezier"):
    barrier = paths[name].barrier()
    print(f"{name}: the loss rises by {barrier.excess:.3f} above the line between the ends")
studies.plots.paths(paths, "train_loss")

# %% [markdown]
# ## A plane through two members
#
# The plane through the origin of the weights and two members: the colour is the share of inputs on which a network of
# the plane agrees with the first member. Lines are the paths of training, points networks drawn around the first member.

# %%
around = studies.sample_subspace(ensemble, trajectory, member=0, sampler="diagonal", count=5)
plane = studies.plane(ensemble, data, grid=9, trajectory=trajectory, samples={"diagonal": around})
studies.plots.plane(plane, "agreement_0")

# %%
for verdict in plane.verdicts:
    print(verdict)

# %% [markdown]
# [The guide](landscape.md) has the same at the command line, [the results](results/landscape-cifar10.md) the claims of
# the paper on CIFAR-10.
