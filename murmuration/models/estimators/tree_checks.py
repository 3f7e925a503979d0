"""Checks of decision trees that were read from a file: scikit-learn follows their indices without looking at bounds."""

from collections.abc import Iterator
from typing import Any

import numpy as np

LEAF = -1  # the left child of a leaf of `sklearn.tree`
BITSET_WORDS = 8  # of 32 bits, one for each category


def damaged_tree(estimator: Any) -> str | None:
    """Return what is wrong with the first tree in a fitted scikit-learn estimator that cannot be followed, or None.

    A child has a larger index than its node, so that no walk is endless, and lies in the tree; a feature lies in the
    inputs.
    """
    return next(_problems(estimator, None, set()), None)


def _problems(value: Any, forest_features: int | None, seen: set[int]) -> Iterator[str]:
    """Yield the problems of all trees in an object; a forest does not check the inputs (N, F) of its trees again."""
    from sklearn.ensemble._forest import BaseForest
    from sklearn.ensemble._gb import BaseGradientBoosting
    from sklearn.tree._tree import Tree

    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype.kind == "O"):
        for item in value if isinstance(value, list | tuple) else value.ravel():
            yield from _problems(item, forest_features, seen)
        return
    own = {} if isinstance(value, type) else getattr(value, "__dict__", {})
    features = own.get("n_features_in_")
    limits = [count for count in (features, forest_features) if count is not None]
    if any(not isinstance(count, int | np.integer) for count in limits):
        yield f"n_features_in_ is {features!r:.40}"
        return
    if "_predictors" in own and "_bin_mapper" in own:
        yield from _histogram_problems(own, limits)
    if isinstance(value, BaseGradientBoosting) and np.shape(own.get("estimators_", []))[1:] != (
        own.get("n_trees_per_iteration_"),
    ):
        yield f"trees of shape {np.shape(own.get('estimators_', []))}"
    for item in own.values():
        if isinstance(item, Tree):
            yield from _tree_problems(item, limits)
        else:
            yield from _problems(item, features if isinstance(value, BaseForest | BaseGradientBoosting) else None, seen)


def _tree_problems(tree: Any, limits: list[int]) -> Iterator[str]:
    """Yield what is wrong with one tree of `sklearn.tree`."""
    inner = tree.children_left != LEAF
    shape = (tree.node_count, tree.n_outputs, tree.max_n_classes)
    if tree.node_count < 1 or tree.value.shape != shape:
        yield f"{tree.node_count} nodes and values of shape {tree.value.shape}"
        return
    yield from _walk_problems(
        inner, tree.children_left, tree.children_right, tree.feature, min([tree.n_features, *limits])
    )


def _histogram_problems(own: dict[str, Any], limits: list[int]) -> Iterator[str]:
    """Yield what is wrong with the trees of histogram gradient boosting."""
    from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE

    is_categorical = np.asarray(own["_bin_mapper"].is_categorical_)
    if is_categorical.dtype.kind not in "bu" or is_categorical.shape != (min(limits, default=-1),):
        yield f"categories of shape {is_categorical.shape} for {limits} features"
        return
    for predictor in (predictor for stage in own["_predictors"] for predictor in stage):
        nodes, bitsets = predictor.nodes, predictor.raw_left_cat_bitsets
        if nodes.dtype != PREDICTOR_RECORD_DTYPE or nodes.ndim != 1 or not len(nodes):
            yield f"nodes of shape {nodes.shape} and type {nodes.dtype}"
            return
        if bitsets.dtype != np.uint32 or bitsets.shape[1:] != (BITSET_WORDS,):
            yield f"sets of categories of shape {bitsets.shape} and type {bitsets.dtype}"
            return
        inner = nodes["is_leaf"] == 0
        yield from _walk_problems(inner, nodes["left"], nodes["right"], nodes["feature_idx"], min(limits))
        split = nodes[inner & (nodes["is_categorical"] != 0)]
        if (split["bitset_idx"] >= len(bitsets)).any() or not is_categorical[split["feature_idx"]].all():
            yield "a split of categories that are not there"


def _walk_problems(
    inner: np.ndarray, left: np.ndarray, right: np.ndarray, feature: np.ndarray, features: int
) -> Iterator[str]:
    """Yield what is wrong with the inner nodes (N,) of a tree, given their children and features (N,)."""
    for name, children in (("left", left.astype(np.int64)), ("right", right.astype(np.int64))):
        bad = inner & ~((children > np.arange(len(inner))) & (children < len(inner)))
        if bad.any():
            node = int(bad.argmax())
            yield f"the {name} child of node {node} of {len(inner)} is {children[node]}"
            return
    bad = inner & ~((feature >= 0) & (feature < features))
    if bad.any():
        node = int(bad.argmax())
        yield f"node {node} splits feature {feature[node]} of {features}"
