"""What every operator promises beyond its numbers: contract.py, for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import contract
import pytest
import torch
from contract import DEVICES, cuda
from test_cem_update import EVERYTHING, options, problem
from test_lltm import cell_inputs
from torch import Tensor

from kernels import (
    cem_update,
    elementwise_mult,
    lltm,
    sample_normal,
    sample_normal_rows,
    sigmoid,
    vector_add,
)


@dataclass(frozen=True)
class Operator:
    """A pure function of tensors alone, and its inputs on a device."""

    function: Callable[..., Any]
    inputs: Callable[[str], Sequence[Tensor]]
    tolerances: dict[str, float] = field(default_factory=dict)
    differentiable: bool = True


def elements(count: int, dtype: torch.dtype) -> Callable[[str], list[Tensor]]:
    generator = torch.Generator().manual_seed(5)
    drawn = [torch.randn(4, 3, 20, 25, generator=generator, dtype=torch.float64) for _ in range(count)]
    return lambda device: [x.to(device, dtype) for x in drawn]


def parameters(device: str) -> list[Tensor]:
    return [torch.linspace(-2, 3, 5, device=device), torch.linspace(0.1, 1.5, 5, device=device)]


def draw(mean: Tensor, std: Tensor) -> Tensor:
    return sample_normal(mean, std, 12, seed=6, generation=1, bounds=(-1.0, 2.5))


def rows(device: str) -> list[Tensor]:
    """Return three problems' mean and standard deviation, their seeds, and a generation."""
    rows = torch.linspace(0.25, 2, 48, device=device).view(3, 2, 8)
    return [rows, torch.tensor([3, 1, 2], device=device), torch.tensor(5, device=device)]


def problems(device: str) -> list[Tensor]:
    both, *noise = rows(device)
    return [both[:, 0].clone(), both[:, 1].clone(), *noise]


def draw_problems(mean: Tensor, std: Tensor, seeds: Tensor, generation: Tensor) -> Tensor:
    return sample_normal(mean, std, 12, seed=seeds, generation=generation, dim_first=False)


def draw_rows(rows: Tensor, seeds: Tensor, generation: Tensor) -> Tensor:
    return sample_normal_rows(rows, 12, seed=seeds, generation=generation)


def search(population: int) -> Callable[[str], tuple[Tensor, ...]]:
    def inputs(device: str) -> tuple[Tensor, ...]:
        given = options(5, 3, torch.float32, device)
        floor = given["std_floor"].expand(2, 3).contiguous()
        return (*problem((2,), population, device=device), given["weights"], given["extra_variance"], floor)

    return inputs


def update(*inputs: Tensor) -> tuple[Tensor, ...]:
    *most, weights, extra, floor = inputs
    return cem_update(
        *most, 5, maximize=False, weights=weights, extra_variance=extra, std_floor=floor, **EVERYTHING
    )


OPERATORS = {
    # Among them, numbers of every width.
    "sigmoid": Operator(sigmoid, elements(1, torch.float32), {"rtol": 1e-6, "atol": 1e-7}),
    "vector_add": Operator(vector_add, elements(2, torch.float16)),
    "elementwise_mult": Operator(elementwise_mult, elements(2, torch.float64)),
    "lltm": Operator(lltm, lambda device: cell_inputs((5, 6, 7), device), {"rtol": 1e-5, "atol": 1e-5}),
    "sample_normal": Operator(draw, parameters),
    "sample_normal of a batch": Operator(draw_problems, problems),
    "sample_normal_rows": Operator(draw_rows, rows),
    "cem_update": Operator(update, search(40), differentiable=False),
}
LARGE = {
    "lltm, left to the BLAS": Operator(
        lltm, lambda device: cell_inputs((300, 80, 80), device), {"rtol": 1e-5, "atol": 1e-5}
    ),
    "cem_update by several kernels": Operator(update, search(20000), differentiable=False),
}
ALL = OPERATORS | LARGE


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("device", DEVICES)
def test_any_layout_gives_the_same_and_is_kept(device: str, name: str) -> None:
    operator = ALL[name]
    contract.check_noncontiguous(operator.function, *operator.inputs(device), **operator.tolerances)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("device", DEVICES)
def test_it_compiles_with_its_gradients(device: str, name: str) -> None:
    operator = OPERATORS[name]
    inputs = operator.inputs(device)
    if operator.differentiable:
        inputs = [x.requires_grad_() if x.is_floating_point() else x for x in inputs]
    contract.check_compiles(operator.function, *inputs, **operator.tolerances)


@cuda
@pytest.mark.parametrize("name", ALL)
def test_graphs_streams_and_devices(name: str) -> None:
    operator = ALL[name]
    contract.check_cuda(operator.function, *operator.inputs("cuda"))


Samples = dict[str, list[tuple[Any, ...]]]


def elementwise_samples(device: str) -> Samples:
    a, b = torch.rand(2, 3, 4, device=device)
    recorded = a.clone().requires_grad_(), b.clone().requires_grad_()
    pairs = [(a, b), recorded, (a.t(), b.t()), (a[:, 1:], b[:, 1:])]
    samples: Samples = {
        "sigmoid": [pair[:1] for pair in pairs],
        "sigmoid_forward": [(a[:, ::2],)],
        "sigmoid_backward": [recorded],
        "elementwise_mult_backward": [(a, a, b), (recorded[0], *recorded)],
    }
    for name in ("vector_add", "elementwise_mult"):
        samples |= {name: pairs, f"{name}_forward": [(a, b), (a.int(), b.int())]}
    return samples


def lltm_samples(device: str) -> Samples:
    inputs = cell_inputs((5, 6, 7), device)
    new_h, new_cell = lltm(*inputs)
    x, weights, _, old_h, _ = inputs
    saved = (x, weights, old_h, new_cell, torch.ops.cem_tetris.lltm_forward(*inputs)[2])
    return {
        "lltm": [tuple(inputs), tuple(x.clone().requires_grad_() for x in inputs)],
        "lltm_forward": [tuple(inputs)],
        "lltm_backward": [
            (new_h, new_cell, *saved, True, True, True),
            (new_h, None, *saved, False, True, False),
            (None, new_cell, *saved, True, False, False),
        ],
    }


def normal_samples(device: str) -> Samples:
    mean, std = parameters(device)
    both, seeds, generation = rows(device)
    means, stds = both[:, 0].clone().requires_grad_(), both[:, 1].clone()
    noise = (0, 0, seeds, generation, False, False, True)
    rest = (None, False, True, False, torch.float32, None)
    grad = torch.ones(3, 8, 6, device=device, requires_grad=True)
    return {
        "sample_normal_no_grad": [(mean, std, 6, 2, 0, None, *rest, std)],
        "sample_normal": [
            (mean.clone().requires_grad_(), std, 6, 0, 0, torch.tensor([9], device=device), *rest, std),
            (means, stds, 6, *noise, torch.float32, None, stds),
        ],
        "sample_normal_rows": [
            (both, 6, seeds, generation, None, None),
            (torch.stack([means.detach(), stds, stds], dim=1), 6, seeds, generation, stds[0].clone(), None),
        ],
        "sample_normal_backward": [(grad, *noise)],
    }


def cem_update_samples(device: str) -> Samples:
    *most, weights, extra, floor = search(40)(device)
    numbers = (5, True, 2, 0.5, 1.0, 0.0, True)
    return {"cem_update": [(*most, extra, weights, floor, *numbers), (*most, None, None, None, *numbers)]}


@pytest.mark.parametrize(
    ("name", "samples"),
    [
        ("elementwise_mult", elementwise_samples),
        ("lltm", lltm_samples),
        ("sample_normal", normal_samples),
        ("cem_update", cem_update_samples),
    ],
)
@pytest.mark.parametrize("device", DEVICES)
def test_opcheck(device: str, name: str, samples: Callable[[str], Samples]) -> None:
    OPERATORS[name].function(*OPERATORS[name].inputs(device))  # registers the folder's operators
    for operator, calls in samples(device).items():
        for arguments in calls:
            torch.library.opcheck(getattr(torch.ops.cem_tetris, operator).default, arguments)


def named(names: str, tensors: Sequence[Tensor]) -> dict[str, Any]:
    return dict(zip(names.split(), tensors, strict=True))


ZEROS, ONES = torch.zeros(3), torch.ones(3)
SEEDS = torch.arange(3)
# Arguments that fit, and each time one that does not, with what is said of it.
WRONG: dict[str, tuple[Callable[..., Any], dict[str, Any], list[tuple[dict[str, Any], str]]]] = {
    "sigmoid": (sigmoid, {"x": ONES}, [({"x": SEEDS}, "float16, .* got int64")]),
    "elementwise_mult": (
        elementwise_mult,
        {"a": ONES, "b": ONES},
        [
            ({"b": 1.0}, "expected a tensor, got float"),
            ({"b": ONES.double()}, r"one dtype, got torch\.float32 and torch\.float64"),
            ({"b": ONES[None]}, r"one shape, got \(3,\) and \(1, 3\)"),
            ({"b": ONES.to("meta")}, "one device, got cpu and meta"),
        ],
    ),
    "lltm": (
        lltm,
        named("input weights bias old_h old_cell", cell_inputs((2, 3, 4))),
        [
            ({"input": torch.zeros(4)}, r"input: .*\(batch, inputs\), got \(4,\)"),
            ({"weights": torch.zeros(12, 6)}, r"weights: .*\(12, 7\), got \(12, 6\)"),
            ({"bias": torch.zeros(1, 12)}, r"bias: .*\(12,\), got \(1, 12\)"),
            ({"old_h": torch.zeros(3, 4)}, r"old_h: .*\(2, states\), got \(3, 4\)"),
            ({"old_cell": torch.zeros(2, 5)}, r"old_cell: .*\(2, 4\), got \(2, 5\)"),
            ({"weights": torch.zeros(12, 7).double()}, "weights: .*float32, .*got torch.float64"),
            ({"old_cell": torch.zeros(2, 4, device="meta")}, "old_cell: expected cpu, .*, got meta"),
        ],
    ),
    "sample_normal": (
        sample_normal,
        {"mean": ZEROS, "std": ONES, "num_samples": 4, "seed": 1},
        [
            ({"mean": torch.zeros(2, 2)}, r"one shape \(\.\.\., d\), got \(2, 2\) and \(3,\)"),
            ({"mean": SEEDS, "std": SEEDS}, "floating.*got torch.int64"),
            ({"std": ONES.to("meta")}, "one device.*got cpu and meta"),
            ({"num_samples": -1}, "num_samples.*got -1"),
            ({"seed": 2**64}, r"seed < 2\*\*64, got 18446744073709551616"),
            ({"seed": 1.5}, "seed to be an int.*got float"),
            ({"generation": 2**38}, "generation.*got 274877906944"),
            ({"generator": torch.Generator()}, "seed or a generator, got both"),
            ({"bounds": (1, 0)}, r"low <= high, got \(1, 0\)"),
            ({"bounds": (torch.zeros(2), 1)}, r"shape \(3,\).*got \(2,\)"),
        ],
    ),
    "sample_normal of a batch": (
        sample_normal,
        {"mean": torch.zeros(3, 4), "std": torch.ones(3, 4), "num_samples": 5, "seed": SEEDS},
        [
            ({"seed": 1}, r"seeds as an int64 tensor of the batch shape \(3,\), got one int"),
            ({"seed": torch.arange(2)}, r"seed of the batch shape \(3,\), got \(2,\)"),
            ({"seed": SEEDS.to("meta")}, "seed on cpu, got meta"),
            ({"generation": SEEDS}, r"generation of shape \(\), got \(3,\)"),
            ({"bounds": (torch.zeros(3), 1)}, r"bound of shape \(3, 4\).*got \(3,\)"),
        ],
    ),
    "sample_normal_rows": (
        sample_normal_rows,
        {"rows": torch.ones(4, 4), "num_samples": 3, "seed": torch.tensor(1), "generation": torch.tensor(0)},
        [
            ({"rows": torch.zeros(1, 4)}, r"R >= 2, got \(1, 4\)"),
            ({"seed": SEEDS}, "seed"),
            ({"generation": SEEDS}, "generation"),
        ],
    ),
    "cem_update": (
        cem_update,
        named("fitness candidates distribution record generation", problem((), 8))
        | {"num_elites": 2, "maximize": False},
        [
            ({"fitness": torch.zeros(7)}, r"candidates of shape \(7, 3\), got \(8, 3\)"),
            ({"candidates": torch.zeros(8, 3).half()}, "float32 or float64, got float16"),
            ({"distribution": torch.zeros(3, 3)}, r"shape \(4, 3\), got \(3, 3\)"),
            ({"record": torch.zeros(5)}, "record of float64, got float32"),
            ({"record": torch.zeros(5, dtype=torch.float64, device="meta")}, "record on cpu, got meta"),
            ({"generation": torch.tensor(1.0)}, "generation of int64, got float32"),
            ({"num_elites": 9}, "num_elites from 1 to 8, got 9"),
            ({"weights": torch.zeros(3).double()}, r"weights of shape \(2,\), got \(3,\)"),
            ({"extra_variance": torch.zeros(0).double()}, r"shape \(T,\), T >= 1, got \(0,\)"),
            ({"std_floor": torch.zeros(4)}, r"std_floor of shape \(3,\).*got \(4,\)"),
            ({"variance_about": "mean"}, "got 'mean'"),
        ],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_argument_that_does_not_fit_is_refused(name: str) -> None:
    function, fitting, changes = WRONG[name]
    function(**fitting)
    for change, message in changes:
        with pytest.raises((TypeError, ValueError), match=message):
            function(**{**fitting, **change})
