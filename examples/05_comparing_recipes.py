# %% [markdown]
# # Comparing recipes
#
# A recipe says how members are trained and what they share. `mm.compare` trains several on the same splits and tests
# which differences are more than noise.

# %%
import murmuration as mm

compared = mm.compare("digits", ["single", "deep-ensemble", "snapshot"], net="mlp", epochs=10, members=3, seed=0)
compared.table[["accuracy", "nll", "ece", "seconds", "parameters"]].round(3)

# %% [markdown]
# The verdict is a sentence, and so are the findings. Differences are paired: both recipes predict the same examples.

# %%
print(*compared.verdict, sep="\n")

# %%
for pair in compared.tests:
    if pair.test.name == "nll":
        difference = pair.test.difference
        interval = f"{float(difference):+.4f} ({difference.low:+.4f} to {difference.high:+.4f})"
        print(f"NLL of {pair.a} minus {pair.b}: {interval}, p = {pair.test.p_value:.2f}")

# %% [markdown]
# These intervals are about the test examples of trained networks; other seeds give other networks. Before a claim about
# a method, train with several: `seeds=(0, 1, 2)`, or in a terminal
#
# ```
# murmur compare digits --recipes single,deep-ensemble,snapshot --corruptions --seeds 0,1,2 --out runs/compared
# ```
#
# which writes the runs and one report, with means, t-intervals and paired differences over the seeds
# ([scores and comparisons](comparing.md)). [Which recipe for what](results/recipes.md), and [costs before training](costs.md).

# %%
mm.plots.risk_coverage(list(compared.evaluations))
