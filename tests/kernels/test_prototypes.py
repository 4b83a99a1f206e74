"""The Numba kernels: on the GPU where there is one, else in Numba's simulator.

``kernels.ops.check`` compares them with the references; here is what its samples do not show.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from kernels.ops import check

OPERATORS = ("cem_update", "elementwise_mult", "lltm", "normal", "sigmoid", "vector_add")
ELEMENTWISE = ("elementwise_mult", "sigmoid", "vector_add")


def load(operator: str, module: str = "prototype") -> ModuleType:
    try:
        check.load_numba()
    except check.Unavailable as missing:
        pytest.skip(str(missing))
    folder = "elementwise" if operator in ELEMENTWISE else operator
    return importlib.import_module(f"kernels.ops.{folder}.{module}")


def functions(operator: str) -> tuple[Any, Any]:
    """Return forward and backward; the latter is None where there is none."""
    found, prefix = vars(load(operator)), f"{operator}_" if operator in ELEMENTWISE else ""
    return found[f"{prefix}forward"], found.get(f"{prefix}backward")


def sample(operator: str) -> list[NDArray[np.float64]]:
    case = load(operator, "check").CASES[operator]
    return [tensor.numpy() for tensor in case.inputs(torch.Generator().manual_seed(3), *case.small)]


def results(operator: str) -> list[NDArray[np.float64]]:
    """Return everything that a prototype computes of a sample."""
    case = load(operator, "check").CASES[operator]
    inputs, (forward, backward) = sample(operator), functions(operator)
    outputs = forward(*inputs, **case.arguments)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    if not case.gradients:
        return list(outputs)
    gradients = backward(*outputs, *inputs, **case.arguments)
    return [*outputs, *(gradients if isinstance(gradients, tuple) else (gradients,))]


@pytest.mark.filterwarnings("ignore:Grid size")
@pytest.mark.parametrize("operator", OPERATORS)
def test_any_grid_computes_the_same(operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    load(operator)
    expected = results(operator)
    for blocks, threads in [(1, 1), (3, 7)]:
        monkeypatch.setattr("kernels.ops.numba_launch.BLOCKS", blocks)
        monkeypatch.setattr("kernels.ops.numba_launch.THREADS", threads)
        for actual, wanted in zip(results(operator), expected, strict=True):
            np.testing.assert_array_equal(actual, wanted)


@pytest.mark.filterwarnings("ignore:Grid size")
@pytest.mark.parametrize("operator", OPERATORS)
def test_inputs_are_kept(operator: str) -> None:
    case, (forward, _), inputs = (
        load(operator, "check").CASES[operator],
        functions(operator),
        sample(operator),
    )
    forward(*inputs, **case.arguments)

    for after, before in zip(inputs, sample(operator), strict=True):
        np.testing.assert_array_equal(after, before)


@pytest.mark.filterwarnings("ignore:Grid size")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sigmoid_does_not_overflow(dtype: type[np.floating]) -> None:
    forward, backward = functions("sigmoid")
    x = np.array([-np.inf, -1e4, -0.0, 0.0, 1e4, np.inf, np.nan], dtype=dtype)
    y = forward(x)

    np.testing.assert_array_equal(y, np.array([0, 0, 0.5, 0.5, 1, 1, np.nan], dtype=dtype))
    np.testing.assert_array_equal(
        backward(np.ones_like(x), x), np.array([0, 0, 0.25, 0.25, 0, 0, np.nan], dtype=dtype)
    )


@pytest.mark.filterwarnings("ignore:Grid size")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sample_depends_on_its_place_alone(dtype: type[np.floating]) -> None:
    prototype = load("normal")
    mean, std = np.zeros(6, dtype), np.ones(6, dtype)
    many = prototype.forward(mean, std, 9, seed=5, generation=1)
    few = prototype.forward(mean[:3], std[:3], 5, seed=5, generation=1)

    np.testing.assert_array_equal(few, many[:3, :5])
    assert len(np.unique(many)) == many.size
    assert not np.intersect1d(many, prototype.forward(mean, std, 9, seed=5, generation=2)).size
