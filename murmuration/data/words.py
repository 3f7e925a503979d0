"""Free text as inputs: the most frequent words of a column, weighted by how rare they are."""

import math
import re
from collections import Counter
from collections.abc import Iterable

import numpy as np

MOST_WORDS = 100  # columns of one text column
MIN_ROWS = 2  # training rows with a word


def words_of(text: str | None) -> frozenset[str]:
    """Return the distinct words of a text, in lower case.

    >>> sorted(words_of("The car, the CAR: 2nd hand"))
    ['2nd', 'car', 'hand', 'the']
    """
    return frozenset(re.findall(r"\w+", (text or "").lower()))


def fit_words(texts: Iterable[str | None]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return the words (W,) that most texts hold, in alphabetical order, and their inverse document frequencies.

    The weight of a word in n of N texts is 1 + log((1 + N) / (1 + n)), as scikit-learn's.
    """
    rows = [words_of(text) for text in texts]
    counts = Counter(word for row in rows for word in row)
    ranked = sorted(
        (word for word, count in counts.items() if count >= MIN_ROWS), key=lambda word: (-counts[word], word)
    )
    words = tuple(sorted(ranked[:MOST_WORDS]))
    return words, tuple(1 + math.log((1 + len(rows)) / (1 + counts[word])) for word in words)


def word_weights(texts: Iterable[str | None], words: tuple[str, ...], weights: tuple[float, ...]) -> np.ndarray:
    """Return the weights (N, W) of the words in every text, divided by the length of the row; 0 without any word."""
    place = {word: i for i, word in enumerate(words)}
    rows = [[place[word] for word in words_of(text) if word in place] for text in texts]
    out = np.zeros((len(rows), len(words)))
    for row, places in enumerate(rows):
        out[row, places] = np.array(weights)[places]
    lengths = np.linalg.norm(out, axis=1, keepdims=True)
    return out / np.where(lengths == 0, 1.0, lengths)
