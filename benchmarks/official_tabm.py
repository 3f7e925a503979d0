"""The official TabM (Gorishniy et al. 2025, package `tabm`), trained as in the example of its repository.

Numbers by a quantile transform to a normal distribution with a little noise in its fit, categories by indicators,
targets as standard scores; piecewise-linear embeddings (48 bins, width 16, version B); k = 32, two blocks of 512 units,
dropout 0.1; AdamW with learning rate 2e-3 and weight decay 3e-4, batches of 256, until the RMSE or accuracy of the
validation rows has not improved for 16 epochs; the best epoch is kept. The k predictions are averaged. In a regression
this is a point prediction.
"""

from collections.abc import Callable
from typing import Any

import contenders
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F

import murmuration as mm

BATCH, PATIENCE, MOST_EPOCHS, BINS = 256, 16, 1000, 48
Inputs = tuple[torch.Tensor | None, torch.Tensor | None]  # numbers (N, D) and categories (N, C)


def encoder(train: pd.DataFrame) -> tuple[Callable[[pd.DataFrame], Inputs], list[int]]:
    """The map from a pandas table to numbers and category indices, and the number of levels of each category.

    A missing number is the median; a missing or unknown level is a level of its own.
    """
    from sklearn.preprocessing import QuantileTransformer

    texts = contenders.text_columns(train)
    numbers = [name for name in train if name not in texts and train[name].nunique() > 1]
    typed = contenders.as_categories(train)
    if numbers:
        known = typed(train)[numbers].to_numpy(np.float32)
        noise = np.random.default_rng(0).normal(0.0, 1e-5, known.shape).astype(np.float32)
        quantiles = max(min(len(train) // 30, 1000), 10)
        scale = QuantileTransformer(n_quantiles=quantiles, output_distribution="normal", subsample=10**9)
        scale.fit(known + noise)

    def encode(frame: pd.DataFrame) -> Inputs:
        x, codes = None, None
        given = typed(frame)
        if numbers:
            x = torch.from_numpy(np.nan_to_num(scale.transform(given[numbers].to_numpy(np.float32)))).float()
        if texts:
            codes = torch.from_numpy(np.stack([given[name].cat.codes.to_numpy(np.int64) + 1 for name in texts], 1))
        return x, codes

    return encode, [len(typed(train)[name].cat.categories) + 1 for name in texts]


def make_model(x: torch.Tensor | None, levels: list[int], outputs: int) -> torch.nn.Module:
    import rtdl_num_embeddings as embeddings
    import tabm

    options: dict[str, Any] = {"n_num_features": 0, "cat_cardinalities": levels, "d_out": outputs}
    if x is not None:
        bins = embeddings.compute_bins(x, n_bins=min(BINS, len(x) - 1))
        pieces = embeddings.PiecewiseLinearEmbeddings(bins, d_embedding=16, activation=False, version="B")
        options |= {"n_num_features": x.shape[1], "num_embeddings": pieces}
    return tabm.TabM.make(**options)


def some(inputs: Inputs, rows: torch.Tensor) -> Inputs:
    return tuple(None if part is None else part[rows] for part in inputs)  # type: ignore[return-value]


@torch.inference_mode()
def mean_outputs(model: torch.nn.Module, inputs: Inputs, *, classes: bool) -> np.ndarray:
    """Class probabilities (N, K), or standard scores (N,): the mean of the k predictions."""
    model.eval()
    count = len(next(part for part in inputs if part is not None))
    outputs = torch.cat([model(*some(inputs, rows)) for rows in torch.arange(count).split(1024)])  # (N, k, K)
    return (outputs.softmax(-1).mean(1) if classes else outputs.squeeze(-1).mean(1)).numpy()


def fit_tabm(data: mm.Data, seed: int) -> contenders.Predictor:
    """TabM trained on the training rows, stopped by the validation rows."""
    torch.manual_seed(seed)
    classes = data.task == "classification"
    encode, levels = encoder(data.train.x)
    train, val, y = encode(data.train.x), encode(data.val.x), contenders.values(data.train)
    centre, scale = (0.0, 1.0) if classes else (y.mean(), y.std())
    targets = torch.from_numpy(y) if classes else torch.from_numpy((y - centre) / scale).float()
    model = make_model(train[0], levels, len(data.classes) if classes else 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=3e-4)

    def score() -> float:
        found, truth = mean_outputs(model, val, classes=classes), contenders.values(data.val)
        if classes:
            return float((found.argmax(1) == truth).mean())
        return -float(np.sqrt(np.mean((found * scale + centre - truth) ** 2)))

    best, kept, waited = -np.inf, model.state_dict(), 0
    for _ in range(MOST_EPOCHS):
        model.train()
        for rows in torch.randperm(len(targets)).split(BATCH):
            optimizer.zero_grad()
            outputs = model(*some(train, rows)).flatten(0, 1)  # (n k, K)
            repeated = targets[rows].repeat_interleave(model.k)
            loss = F.cross_entropy(outputs, repeated) if classes else F.mse_loss(outputs.squeeze(-1), repeated)
            loss.backward()
            optimizer.step()
        reached = score()
        waited = 0 if reached > best else waited + 1
        if waited == 0:
            best, kept = reached, {name: value.clone() for name, value in model.state_dict().items()}
        if waited > PATIENCE:
            break
    model.load_state_dict(kept)
    if classes:
        return contenders.from_classes(lambda split: mean_outputs(model, encode(split.x), classes=True))
    point = lambda split: mean_outputs(model, encode(split.x), classes=False) * scale + centre  # noqa: E731
    return contenders.from_points(point, data.val)
