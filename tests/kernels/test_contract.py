"""What every operator promises beyond its numbers: contract.py, for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import contract
import pytest
import torch
from contract import DEVICES, cuda
from test_cem_update import EVERYTHING, options, problem
from test_cma_update import start
from test_elementwise import EXACT
from test_elementwise import OPERATORS as ELEMENTWISE
from test_lltm import cell_inputs
from torch import Tensor

from kernels import (
    cem_update,
    cma_update,
    draw_correlated,
    lltm,
    sample_normal,
    sample_normal_rows,
    sigmoid,
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
        given = options(5, 3, torch.float32)
        most = given["weights"], given["extra_variance"], given["std_floor"].expand(2, 3).contiguous()
        return tuple(x.to(device) for x in (*problem((2,), population), *most))

    return inputs


def update(*inputs: Tensor) -> tuple[Tensor, ...]:
    *most, weights, extra, floor = inputs
    return cem_update(
        *most, 5, maximize=False, weights=weights, extra_variance=extra, std_floor=floor, **EVERYTHING
    )


RATES = (4.0, 0.3, 1.5, 0.2, 0.1, 0.2, 1.6)


def correlated(device: str) -> tuple[Tensor, ...]:
    """Return what ``adapt`` takes."""
    inputs, given = start((2,), 40, 3, dtype=torch.float32)
    return tuple(x.to(device) for x in (*inputs, given["weights"], *search(40)("cpu")[6:]))


def adapt(*inputs: Tensor) -> tuple[Tensor, ...]:
    *most, weights, extra, floor = inputs
    return cma_update(
        *(*most, 20), maximize=True, rates=RATES, weights=weights, extra_variance=extra, std_floor=floor
    )


def draws(device: str) -> tuple[Tensor, ...]:
    """Return what ``draw_rotated`` takes."""
    inputs = correlated(device)
    seeds = torch.tensor([3, 1], device=device)
    return inputs[2], inputs[5], seeds, inputs[4], inputs[9] - 1, inputs[9]


def draw_rotated(
    distribution: Tensor, factor: Tensor, seeds: Tensor, generation: Tensor, low: Tensor, high: Tensor
) -> Tensor:
    noise = {"seed": seeds, "generation": generation}
    return draw_correlated(distribution, factor, 12, **noise, bounds=(low, high))


OPERATORS = {
    name: Operator(
        function,
        elements(count, dtype),
        {} if name in EXACT else {"rtol": 10 * torch.finfo(dtype).eps, "atol": torch.finfo(dtype).eps},
    )
    # Among them, numbers of every width.
    for (name, (function, _, _, count)), dtype in zip(
        ELEMENTWISE.items(), cycle([torch.float32, torch.float16, torch.float64]), strict=False
    )
} | {
    "lltm": Operator(lltm, lambda device: cell_inputs((5, 6, 7), device), {"rtol": 1e-5, "atol": 1e-5}),
    "sample_normal": Operator(draw, parameters),
    "sample_normal of a batch": Operator(draw_problems, problems),
    "sample_normal_rows": Operator(draw_rows, rows),
    "cem_update": Operator(update, search(40), differentiable=False),
    "cma_update": Operator(adapt, correlated, differentiable=False),
    "draw_correlated": Operator(draw_rotated, draws, differentiable=False),
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
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_it_compiles_with_its_gradients(backend: str, device: str, name: str) -> None:
    operator = OPERATORS[name]
    inputs = operator.inputs(device)
    if operator.differentiable:
        inputs = [x.requires_grad_() if x.is_floating_point() else x for x in inputs]
    contract.check_compiles(backend, operator.function, *inputs, **operator.tolerances)


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
        "sigmoid_backward": [recorded],
        "elementwise_mult_backward": [(a, a, b)],
    }
    for name, (*_, count) in ELEMENTWISE.items():
        plain = [(a, b), (a[:, ::2], b[:, ::2]), *([(a.int(), b.int())] if name in EXACT else [])]
        samples |= {name: [pair[:count] for pair in pairs], f"{name}_forward": [x[:count] for x in plain]}
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
        "sample_normal_seeded": [(mean, std, 6, 2, 1)],
    }


def cem_update_samples(device: str) -> Samples:
    *most, weights, extra, floor = search(40)(device)
    numbers = (5, True, 2, 0.5, 1.0, 0.0, True)
    return {"cem_update": [(*most, extra, weights, floor, *numbers), (*most, None, None, None, *numbers)]}


def cma_update_samples(device: str) -> Samples:
    *most, extra, floor = correlated(device)
    numbers = (20, True, 0.5, 0.0, *RATES)
    return {"cma_update": [(*most, extra, floor, *numbers), (*most, None, None, *numbers)]}


def draw_correlated_samples(device: str) -> Samples:
    distribution, factor, *noise, low, high = draws(device)
    plain = (distribution, factor, 12, *noise)
    return {"draw_correlated": [plain, (*plain, low, high)]}


@pytest.mark.parametrize(
    ("name", "samples"),
    [
        ("elementwise_mult", elementwise_samples),
        ("lltm", lltm_samples),
        ("sample_normal", normal_samples),
        ("cem_update", cem_update_samples),
        ("cma_update", cma_update_samples),
        ("draw_correlated", draw_correlated_samples),
    ],
)
@pytest.mark.parametrize("device", DEVICES)
def test_opcheck(device: str, name: str, samples: Callable[[str], Samples]) -> None:
    OPERATORS[name].function(*OPERATORS[name].inputs(device))  # registers the folder's operators
    names = [each.removeprefix("cem_tetris::") for each in torch._C._dispatch_get_all_op_names()]
    family = tuple(ELEMENTWISE) if name in ELEMENTWISE else name
    assert samples(device).keys() == {each for each in names if each.startswith(family)}
    for operator, tried in samples(device).items():
        for arguments in tried:
            torch.library.opcheck(getattr(torch.ops.cem_tetris, operator).default, arguments)


def calls(device: str) -> list[tuple[Callable[..., Any], Sequence[Tensor], dict[str, Sequence[int]]]]:
    """Return functions, tensors that fit each other, and where any size, type or device does.

    The operators behind the public functions are among them: they check what they read by themselves.
    """
    for name in ("sigmoid", "lltm", "sample_normal", "cem_update"):
        OPERATORS[name].function(*OPERATORS[name].inputs(device))  # registers the folder's operators
    operators = torch.ops.cem_tetris
    a, b, c = torch.rand(3, 4, 5, device=device)
    cell = cell_inputs((2, 3, 4), device)
    new_h, new_cell = lltm(*cell)
    saved = [new_h, new_cell, *cell[:2], cell[3], new_cell, operators.lltm_forward(*cell)[2]]
    both, seeds, generation = rows(device)
    mean, std, *noise = problems(device)
    flags = (False, False, False)
    # The fake kernels, which a tensor without memory goes to, leave this to the operators.
    any_device = {"device": range(9)} if device == "cpu" else {}
    binary = [name for name, (*_, count) in ELEMENTWISE.items() if count == 2]
    return [
        *(
            (getattr(operators, f"{name}{ending}"), [a, b], {})
            for name in binary
            for ending in ("", "_forward")
        ),
        *((ELEMENTWISE[name][0], [a, b], {}) for name in binary),
        (operators.elementwise_mult_backward, [a, b, c], any_device),
        (operators.sigmoid_backward, [a, b], any_device),
        (lltm, cell, {}),
        (operators.lltm_forward, cell, {}),
        (lambda *x: operators.lltm_backward(*x, True, True, True), saved, any_device),
        (draw_problems, [mean, std, *noise], {}),
        (draw_rows, [both, seeds, generation], {"size": [0], "type": [0]}),
        (
            lambda mean, std, seeds, generation, low: operators.sample_normal_no_grad(
                mean, std, 6, 0, 0, seeds, generation, *flags, torch.float32, low, None
            ),
            [mean, std, *noise, mean - 1],
            any_device,
        ),
        (
            lambda grad, *noise: operators.sample_normal_backward(grad, 0, 0, *noise, *flags),
            [torch.ones(3, 6, 8, device=device), *noise],
            {"size": [0], "type": [0], **any_device},
        ),
        (update, search(40)(device), {"size": [6], "type": [0]}),
        (adapt, correlated(device), {"size": [8], "type": [0]}),
        (draw_rotated, draws(device), {}),
    ]


@pytest.mark.parametrize("device", DEVICES)
def test_tensors_that_do_not_fit_are_refused(device: str) -> None:
    for function, inputs, free in calls(device):
        contract.check_misfits(function, *inputs, free=free)


def wrong(function: Callable[..., Any], message: str, *arguments: Any, **options: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        function(*arguments, **options)


def test_numbers_and_types_that_no_tensor_gives_away_are_refused() -> None:
    x, counts = torch.zeros(3), torch.arange(3)
    state = problem((), 8)
    wrong(sigmoid, "float16, .* got int64", counts)
    wrong(lltm, "expected input of .*float32.*got int64", *(each.long() for each in cell_inputs((2, 3, 4))))
    wrong(sample_normal, "float16, .*got int64", counts, counts, 4)
    wrong(sample_normal, "num_samples.*got -1", x, x, -1)
    wrong(sample_normal, r"seed < 2\*\*64, got 18446744073709551616", x, x, 4, seed=2**64)
    wrong(sample_normal, "generation.*got 274877906944", x, x, 4, seed=1, generation=2**38)
    wrong(sample_normal, "seed or a generator, got both", x, x, 4, seed=1, generator=torch.Generator())
    wrong(sample_normal, r"low <= high, got \(1, 0\)", x, x, 4, bounds=(1, 0))
    wrong(sample_normal, "seed to be a tensor, got int", x[None], x[None], 4, seed=1)
    wrong(sample_normal_rows, r"R >= 2, got \(1, 3\)", x[None], 4, seed=counts[0], generation=counts[0])
    wrong(cem_update, "num_elites from 1 to 8, got 9", *state, 9, maximize=False)
    wrong(cem_update, "got 'mean'", *state, 2, maximize=False, variance_about="mean")
    empty = torch.zeros(0, dtype=torch.float64)
    inputs, given = start((), 8, 65)
    wrong(cma_update, "at most 2048 candidates, got 65 and 8", *inputs, **given)
    noise = {"seed": counts[0], "generation": counts[0]}
    wrong(draw_correlated, r"d <= 64, got \(4, 65\)", inputs[2], inputs[5], 8, **noise)
    wrong(cem_update, r"T >= 1, got \(0,\)", *state, 2, maximize=False, extra_variance=empty)
