# %% [markdown]
# # Calibration and conformal prediction
#
# A probability of 0.9 should be right nine times out of ten, and a 90 % set should hold the truth nine times out of
# ten. The first is calibration, the second conformal prediction; `mm.fit` does both on validation rows.

# %%
import numpy as np
from sklearn.datasets import load_digits

import murmuration as mm

x, y = load_digits(return_X_y=True)
x = x + np.random.default_rng(0).normal(0, 6, x.shape)  # noise makes the digits hard, and networks overconfident
data = mm.open_data((x.astype(np.float32), y))
raw = mm.fit("mlp", data, members=2, epochs=40, patience=None, seed=0, posthoc=None)  # without post-hoc steps
ensemble = raw.fit_posthoc(data.val)  # with the default steps
ensemble.posthoc.calibrator

# %% [markdown]
# ## Calibrated probabilities
#
# The calibrator is applied only if it helps examples on which it was not fitted. Scores carry their 95 % intervals.

# %%
before, after = (model.predict(data.test) for model in (raw, ensemble))
for name, predictive in {"before": before, "after": after}.items():
    scores = mm.score(predictive, data.test.y)
    print(f"{name:7} NLL {float(scores['nll']):.3f}, calibration error {float(scores['ece']):.3f}")
mm.plots.reliability(after, data.test.y)

# %% [markdown]
# ## Prediction sets
#
# Split conformal prediction: the set of an input holds every class that is not too improbable, where "too" was measured
# on held-out examples. The promise is about inputs like those, on average over them.

# %%
rule = mm.fit_conformal("aps", ensemble.predict(data.val), data.val.y, coverage=0.9)
sets = rule.regions(after)  # (N, K), whether a class is in the set
held = sets[np.arange(len(sets)), data.test.y]
print(f"{held.mean():.1%} of the sets hold the label; mean size {sets.sum(1).mean():.2f}")

# %% [markdown]
# ## Under distribution shift
#
# The promise ends where inputs change: with noise, missing values and drift the sets cover less.

# %%
evaluation = mm.evaluate(ensemble, data, shift=True)
for severity, scores in evaluation.shift.by_severity.items():
    print(
        f"severity {severity}: accuracy {float(scores['accuracy']):.2f}, sets cover {float(scores['set_coverage']):.0%}"
    )
mm.plots.shift(evaluation, "accuracy")

# %% [markdown]
# [The guide](calibration.md) has the calibrators and the conformal methods, [abstention](abstention.md) its rules;
# `murmur audit forest.csv` does the same for [predictions of any other model](audit.md).
