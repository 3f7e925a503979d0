"""Points of a weight space leave parameters with `requires_grad=False` alone."""

from dataclasses import replace
from pathlib import Path

import torch
from frozen_networks import COMMON, PLAN, BodyAndHead, X, Y, same_body

import murmuration as mm
from murmuration.studies.subspaces import sample_subspace
from murmuration.studies.trajectory import open_trajectory
from murmuration.studies.weight_space import points_of


def test_points_of_a_weight_space_leave_fixed_parameters_where_they_are(tmp_path: Path):
    plan = replace(PLAN, trajectory="every-epoch")
    ensemble = mm.fit(same_body, (X, Y), plan=plan, out=tmp_path / "run")
    points = points_of(ensemble)
    assert points.vectors.shape == (2, 99)
    drawn = sample_subspace(ensemble, None, sampler="dropout", count=3)
    for index in range(3):
        assert torch.equal(drawn.module(index).body[0].weight, COMMON.body[0].weight)
    made = points.ensemble(ensemble).predict(X).outputs  # of own copies: products are summed in another order
    torch.testing.assert_close(made, ensemble.predict(X).outputs, rtol=1e-5, atol=1e-6)
    trajectory = open_trajectory(tmp_path / "run", net=same_body)
    assert torch.equal(trajectory.at(1, -1), points.vectors[1])
    mm.fit(BodyAndHead, (X, Y), plan=plan, out=tmp_path / "differ")
    differ = open_trajectory(tmp_path / "differ", net=BodyAndHead)
    assert torch.equal(differ.at(1, -1), differ.points.vectors[1])
    assert differ.points.vectors.shape == (2, 155)  # fixed values that differ between members belong to their points
