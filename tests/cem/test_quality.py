"""That searches with their defaults do not collapse."""

import pytest
import torch
from searches import sphere, step

from cem import CEMConfig, CrossEntropyMethod


def test_none_of_200_searches_on_the_sphere_collapses():
    # Dimension 10, from mean 1 and std 1, 60 generations of 100: the method as published loses 47 to 75 %.
    search = CrossEntropyMethod(torch.ones(200, 10), 1.0, 100, maximize=False, config=CEMConfig(), seed=0)
    step(search, sphere, 60)
    missed = search.mean.abs().amax(-1) > 1e-3
    assert int(missed.sum()) == 0


@pytest.mark.parametrize("distance", [10.0, 1000.0])
def test_an_optimum_far_beyond_the_first_std_is_found(distance):
    config = CEMConfig.cma("diagonal")
    search = CrossEntropyMethod(torch.full((20, 5), distance), 1.0, 50, maximize=False, config=config, seed=0)
    step(search, sphere, 300)
    assert int((search.mean.abs().amax(-1) > 1e-3).sum()) == 0
