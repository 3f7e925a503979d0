# %% [markdown]
# # Photos
#
# A folder with one sub-folder of images per class becomes a classifier. Here the photos are drawn: squares, discs and
# stripes in noise, of several sizes, so that the page needs no download.

# %%
from pathlib import Path

import numpy as np
from PIL import Image

import murmuration as mm

rng = np.random.default_rng(0)


def photo(kind: str) -> Image.Image:
    side = int(rng.integers(40, 80))
    rows, columns = np.mgrid[:side, :side] / side - rng.uniform(0.45, 0.55, (2, 1, 1))
    radius = rng.uniform(0.25, 0.4)
    shapes = {
        "disc": rows**2 + columns**2 < radius**2,
        "square": np.maximum(abs(rows), abs(columns)) < radius,
        "stripes": np.sin(rng.uniform(25, 35) * (rows + columns)) > 0,
    }
    colours = rng.integers(0, 256, (2, 3))
    pixels = np.where(shapes[kind][..., None], *colours) + rng.normal(0, 15, (side, side, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


for kind in ("disc", "square", "stripes"):
    for number in range(150):
        path = Path("photos") / kind / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        photo(kind).save(path)

# %% [markdown]
# ## Train
#
# `size=24` resizes and crops all files alike. With a few hundred real photos take features of a network with ImageNet
# weights instead: `mm.fit("linear", "photos", features="efficientnet-lite0", members=10)` ([guide](features.md)).

# %%
data = mm.open_data("photos", size=24)
ensemble = mm.fit("small-cnn", data, members=3, epochs=15, seed=0)
evaluation = mm.evaluate(ensemble, data)
print("accuracy", evaluation.scores["accuracy"])
mm.plots.confusion_matrix(evaluation)

# %% [markdown]
# ## Predict
#
# New photos get a class, probabilities, a set that holds the right class nine times out of ten, and a decision: where an
# error costs five times as much as no answer, is this photo answered?

# %%
predictive = ensemble.predict(data.test)
predictive.to_pandas().round(2).head(4).T

# %% [markdown]
# ## Photos of something else
#
# The network has to choose one of its classes for every input, and may be sure of it. How well do its uncertainties tell
# noise from photos? An AUROC of 1 is perfect, 0.5 is chance, and below that noise looks *more* certain than photos. The
# distance to training images in the space of features notices what the probabilities miss.

# %%
noise = rng.integers(0, 256, (50, 3, 24, 24), dtype=np.uint8)
detections = mm.evaluate(ensemble, data, ood={"noise": noise}).ood[0].detections
for name, detection in sorted(detections.items(), key=lambda item: -float(item[1].auroc)):
    print(f"{name:20} AUROC {float(detection.auroc):.2f}")
