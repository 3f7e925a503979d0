"""Inputs of your own: a network with two inputs, text as tokens, time series in memory and from a data loader.

python examples/own_inputs.py
"""

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import murmuration as mm

EXAMPLES, LENGTH, WORDS = 240, 12, 30


class TwoInputs(nn.Module):
    """A small image and a few numbers, joined before the head."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.numbers = nn.Linear(3, 4)
        self.head = nn.Linear(8, 2)

    def forward(self, image: Tensor, numbers: Tensor) -> Tensor:
        return self.head(torch.cat([self.image(image), torch.relu(self.numbers(numbers))], 1))


class Text(nn.Module):
    """The mean of word vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.words(tokens).mean(1))


class Recurrent(nn.Module):
    """The last state of an LSTM over a series (N, C, L)."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(2, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x.transpose(1, 2))[0][:, -1])


def convolutional() -> nn.Module:
    return nn.Sequential(nn.Conv1d(2, 8, 3), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(8, 2))


def own_data() -> dict[str, tuple]:
    """Inputs and labels of each kind; series are not negative, as counts are, and high for a while or not."""
    rng = torch.Generator().manual_seed(0)
    images, numbers = torch.rand(EXAMPLES, 1, 6, 6, generator=rng), torch.randn(EXAMPLES, 3, generator=rng)
    tokens = torch.randint(WORDS, (EXAMPLES, LENGTH), generator=rng)
    series = torch.rand(EXAMPLES, 2, LENGTH, generator=rng)
    return {
        "two inputs": ((images, numbers), (numbers[:, 0] + images.mean((1, 2, 3)) > 0.5).long()),
        "tokens": (tokens, (tokens < 3).any(1).long()),
        "series": (series, (series[:, 0].unfold(1, 3, 1).mean(-1).amax(1) > 0.75).long()),
    }


def loader(x: Tensor, y: Tensor) -> DataLoader:
    return DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)


def main(quick: bool = False) -> dict[str, float]:
    data = own_data()
    settings = {"members": 2 if quick else 5, "epochs": 25 if quick else 60, "lr": 0.02}
    x, y = data["series"]
    runs = {  # by the network: the inputs given to fit, and what says how to read them
        "two inputs": (TwoInputs, data["two inputs"], {}),
        "tokens": (Text, data["tokens"], {"inputs": "tokens"}),
        "Conv1d": (convolutional, (x, y), {}),
        "LSTM, streamed": (Recurrent, (loader(x[:200], y[:200]), loader(x[200:], y[200:])), {}),
    }
    found = {}
    for name, (net, given, reading) in runs.items():
        ensemble = mm.fit(net, given, **settings, **reading)
        x, y = data.get(name, data["series"])
        scores = mm.evaluate(ensemble, (x, y)).scores
        first = tuple(each[:1] for each in x) if isinstance(x, tuple) else x[:1]
        certain = ensemble.predict(first).mean.max().item()
        found[name] = float(scores["accuracy"])
        print(f"{name:15} accuracy {found[name]:.2f}, certainty of the first answer {certain:.2f}")
    return found


if __name__ == "__main__":
    main()
