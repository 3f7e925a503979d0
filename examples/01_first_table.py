# %% [markdown]
# # A first table
#
# From a table to predictions with intervals that hold. The data are 442 patients of scikit-learn's diabetes study:
# ten columns, and a target that measures how far the disease has progressed a year later. `mm.fit` takes the name of a
# `.csv` file just as well.

# %%
from sklearn.datasets import load_diabetes

import murmuration as mm

table = load_diabetes(as_frame=True, scaled=False).frame.rename(columns={"target": "progression"})
train, new = table[:342], table[342:]
train.head(3)

# %% [markdown]
# ## Train
#
# `None` asks for the default network, whose size follows from the table. Five networks are trained; a share of the
# rows validates: it stops training early and calibrates the intervals.

# %%
ensemble = mm.fit(None, train, target="progression", members=5, seed=0)
ensemble

# %% [markdown]
# ## Predict
#
# `predict` takes raw rows. Every row gets a mean, the part of its uncertainty that is noise (aleatoric), the part on
# which the members disagree (epistemic), and two intervals: of the predicted distribution, and the conformal one.

# %%
predictive = ensemble.predict(new)
predictive.to_pandas().round(1).head(4).T

# %% [markdown]
# Use the conformal interval where a promise is needed: it covers 90 % of rows like those of training, whatever the
# network. Did it?

# %%
low, high = (predictive.to_pandas()[f"conformal_{end}_90_progression"] for end in ("low", "high"))
covered = ((low <= new["progression"].to_numpy()) & (new["progression"].to_numpy() <= high)).mean()
scores = mm.score(predictive, new["progression"])
print(f"{covered:.0%} of {len(new)} new rows lie in their 90 % interval")
print(f"root mean square error {float(scores['rmse']):.0f}; that of a constant {new['progression'].std():.0f}")

# %% [markdown]
# ## What decides
#
# Shuffling a column among the rows shows how much the predictions need it.

# %%
data = mm.open_data(train, target="progression")
importance = mm.columns.column_importance(ensemble, data)
mm.plots.column_importance(importance)

# %% [markdown]
# ## Keep it
#
# `ensemble.save("runs/diabetes")` writes the run and `mm.load("runs/diabetes")` predicts the same. The same in a
# terminal, with a report:
#
# ```
# murmur train diabetes.csv --target progression --out runs/diabetes
# ```
