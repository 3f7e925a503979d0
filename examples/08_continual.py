# %% [markdown]
# # Continual learning
#
# A network that learns one task after another forgets the first ones. Here the digits come in five tasks of two
# classes, and three learners try to keep them all.

# %%
from murmuration.applications.continual.harness import run_method
from murmuration.applications.continual.methods import MethodSettings
from murmuration.applications.continual.task_streams import BatchPlan, open_stream

stream = open_stream("split:digits:5x2", examples=240)
final = {}
for method in ("adam", "replay", "lda"):
    outcome = run_method(method, stream, BatchPlan(batch_size=32, epochs=3), MethodSettings())
    final[method] = outcome.accuracy.final_average
    print(
        f"{method:7} accuracy {final[method]:.0%} over all tasks at the end, forgetting {outcome.accuracy.forgetting:.0%}"
    )

# %% [markdown]
# `adam` is plain training and forgets. `replay` keeps 500 examples and repeats them. `lda`, streaming linear discriminant
# analysis, keeps means and one covariance, and is hard to beat on good features.
#
# ```
# murmur continual split:digits:5x2 --method hcl-fr,lda,replay,joint
# ```
#
# compares learners and writes a page. [The guide](continual.md) lists them, [the results](results/continual.md) have
# what they reach on images.
