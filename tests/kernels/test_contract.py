"""What every operator promises beyond its numbers: contract.py, for all of them."""

from __future__ import annotations

import math
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
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from kernels import (
    cem_update,
    cma_update,
    draw_correlated,
    lltm,
    sample_categorical,
    sample_normal,
    sample_normal_rows,
    sample_permutation,
    sigmoid,
    update_tables,
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
    drawn = [
        torch.randn(4, 3, 20, 25, generator=generator, dtype=torch.float64)
        for _ in range(count)
    ]
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
        most = (
            given["weights"],
            given["extra_variance"],
            given["std_floor"].expand(2, 3).contiguous(),
        )
        return tuple(x.to(device) for x in (*problem((2,), population), *most))

    return inputs


def update(*inputs: Tensor) -> tuple[Tensor, ...]:
    *most, weights, extra, floor = inputs
    return cem_update(
        *most,
        5,
        maximize=False,
        weights=weights,
        extra_variance=extra,
        std_floor=floor,
        **EVERYTHING,
    )


RATES = (4.0, 0.3, 1.5, 0.2, 0.1, 0.2, 1.6)


def correlated(device: str) -> tuple[Tensor, ...]:
    """Return what ``adapt`` takes."""
    inputs, given = start((2,), 40, 3, dtype=torch.float32)
    return tuple(x.to(device) for x in (*inputs, given["weights"], *search(40)("cpu")[6:]))


def adapt(*inputs: Tensor) -> tuple[Tensor, ...]:
    *most, weights, extra, floor = inputs
    return cma_update(
        *(*most, 20),
        maximize=True,
        rates=RATES,
        weights=weights,
        extra_variance=extra,
        std_floor=floor,
    )


def draws(device: str) -> tuple[Tensor, ...]:
    """Return what ``draw_rotated`` takes."""
    inputs = correlated(device)
    seeds = torch.tensor([3, 1], device=device)
    return inputs[2], inputs[5], seeds, inputs[4], inputs[9] - 1, inputs[9]


def draw_rotated(
    distribution: Tensor,
    factor: Tensor,
    seeds: Tensor,
    generation: Tensor,
    low: Tensor,
    high: Tensor,
) -> Tensor:
    noise = {"seed": seeds, "generation": generation}
    return draw_correlated(distribution, factor, 12, **noise, bounds=(low, high))


def tables(*shape: int) -> Callable[[str], tuple[Tensor, ...]]:
    """Return two problems' probabilities, their seeds and a generation."""
    p = torch.linspace(0, 1, 2 * math.prod(shape), dtype=torch.float64).view(2, *shape)
    return lambda device: tuple(
        x.to(device) for x in (p, torch.tensor([3, 1]), torch.tensor(5))
    )


def draw_categories(table: Tensor, seeds: Tensor, generation: Tensor) -> Tensor:
    return sample_categorical(table, 12, seed=seeds, generation=generation)


def draw_permutations(table: Tensor, seeds: Tensor, generation: Tensor) -> Tensor:
    return sample_permutation(table, 12, seed=seeds, generation=generation)


def ranked(device: str) -> tuple[Tensor, ...]:
    """Return what ``move_tables`` takes: a variable and two transitions of two problems."""
    fitness, x, distribution, record, generation, *_ = problem((2,), 40, 3)
    p = torch.cat(
        [torch.linspace(0, 1, 16, dtype=torch.float64).view(2, 8), distribution[:, 0].double()],
        dim=-1,
    )
    return tuple(y.to(device) for y in (fitness, (x > 0).to(x), p, record, generation))


def move_tables(fitness: Tensor, x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
    return update_tables(
        fitness, x, state, 7, [(1, 1, 2, None), (2, 3, 2, None)], maximize=True
    )


SUMS = {"rtol": 1e-5, "atol": 1e-5}  # of gradients, whose order a compiler chooses

OPERATORS = {
    name: Operator(
        function,
        elements(count, dtype),
        {}
        if name in EXACT
        else {"rtol": 10 * torch.finfo(dtype).eps, "atol": torch.finfo(dtype).eps},
    )
    # Among them, numbers of every width.
    for (name, (function, _, _, count)), dtype in zip(
        ELEMENTWISE.items(), cycle([torch.float32, torch.float16, torch.float64]), strict=False
    )
} | {
    "lltm": Operator(
        lltm, lambda device: cell_inputs((5, 6, 7), device), {"rtol": 1e-5, "atol": 1e-5}
    ),
    "sample_normal": Operator(draw, parameters, SUMS),
    "sample_normal of a batch": Operator(draw_problems, problems, SUMS),
    "sample_normal_rows": Operator(draw_rows, rows, SUMS),
    "cem_update": Operator(update, search(40), differentiable=False),
    "cma_update": Operator(adapt, correlated, differentiable=False),
    "draw_correlated": Operator(draw_rotated, draws, differentiable=False),
    "sample_categorical": Operator(draw_categories, tables(3, 4), differentiable=False),
    "sample_permutation": Operator(draw_permutations, tables(7, 6), differentiable=False),
    "update_tables": Operator(move_tables, ranked, differentiable=False),
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
    contract.check_noncontiguous(
        operator.function, *operator.inputs(device), **operator.tolerances
    )


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
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


FAMILIES = (
    *ELEMENTWISE,
    "lltm",
    "sample_",
    "cem_update",
    "cma_update",
    "draw_correlated",
    "update_tables",
)


class Recorder(TorchDispatchMode):
    """Records the calls of this project's operators, by their names."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, list[tuple[Any, ...]]] = {}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function.namespace == "cem_tetris":
            self.calls.setdefault(function.__name__.partition(".")[0], []).append(args)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("device", DEVICES)
def test_opcheck(device: str) -> None:
    """Every operator, with the arguments that the public functions and their gradients give
    it."""
    with Recorder() as recorder:
        for each in OPERATORS.values():
            each.function(*each.inputs(device))
            if each.differentiable:
                leaves = [
                    x.requires_grad_() if x.is_floating_point() else x
                    for x in each.inputs(device)
                ]
                contract.results_and_gradients(each.function, leaves)
    calls = (
        recorder.calls
        | {  # those that may be seen as what they call
            **{
                f"{name}_forward": [tuple(OPERATORS[name].inputs(device))]
                for name in ELEMENTWISE
            },
            "lltm_forward": [tuple(cell_inputs((5, 6, 7), device))],
            "sample_normal_rows": [(rows(device)[0], 6, *rows(device)[1:])],
            "lltm": [tuple(x.requires_grad_() for x in cell_inputs((5, 6, 7), device))],
            "sample_normal_seeded": [
                (*parameters(device), 6, 2, 1),
                (*parameters(device), 6, 2, 1, True, True),
            ],
        }
    )
    known = {
        each.removeprefix("cem_tetris::") for each in torch._C._dispatch_get_all_op_names()
    }
    assert calls.keys() == {each for each in known if each.startswith(FAMILIES)}
    for name, recorded in calls.items():
        operator = getattr(torch.ops.cem_tetris, name).default
        has_gradient = torch._C._dispatch_has_kernel_for_dispatch_key(
            operator.name(), "Autograd"
        )
        for arguments in recorded:
            given = (
                x.detach() if isinstance(x, Tensor) and not has_gradient else x
                for x in arguments
            )
            torch.library.opcheck(operator, tuple(given))


@pytest.mark.parametrize("device", DEVICES)
def test_tensors_that_do_not_fit_are_refused(device: str) -> None:
    a, b = torch.rand(2, 4, 5, device=device)
    binary = [f for f, *_, count in ELEMENTWISE.values() if count == 2]
    # Functions, tensors that fit each other, and where any size or type does.
    for function, inputs, free in [
        *((each, [a, b], {}) for each in binary),
        (lltm, cell_inputs((2, 3, 4), device), {}),
        (draw_problems, problems(device), {}),
        (draw_rows, rows(device), {"size": [0], "type": [0]}),
        (update, search(40)(device), {"size": [6], "type": [0]}),
        (adapt, correlated(device), {"size": [8], "type": [0]}),
        (draw_rotated, draws(device), {}),
        (move_tables, ranked(device), {"type": [0, 1]}),
        (draw_categories, tables(3, 4)(device), {"size": [0]}),
        (draw_permutations, tables(7, 6)(device), {}),
    ]:
        contract.check_misfits(function, *inputs, free=free)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("device", DEVICES)
def test_autocast_gives_all_tensors_the_widest_type(device: str, name: str) -> None:
    operator = OPERATORS[name]
    contract.check_autocast(operator.function, *operator.inputs(device), **operator.tolerances)


def test_fake_tensors_on_two_devices_are_refused() -> None:
    with FakeTensorMode(), pytest.raises(ValueError, match="on one device, got b on another"):
        vector_add(torch.ones(3), torch.ones(3, device="cuda"))


def test_a_function_of_sizes_that_do_not_fit_is_not_exported() -> None:
    class Sum(torch.nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return vector_add(a, b)

    with pytest.raises(ValueError, match=r"expected b of shape \(3\), got \(2\)"):
        torch.export.export(Sum(), (torch.ones(3), torch.ones(2)))
    size = torch.export.Dim("size")
    inputs = (torch.ones(3), torch.ones(3))
    program = torch.export.export(Sum(), inputs, dynamic_shapes=({0: size}, {0: size}))
    assert program.module()(torch.ones(5), torch.ones(5)).shape == (5,)


def wrong(function: Callable[..., Any], message: str, *arguments: Any, **options: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        function(*arguments, **options)


def test_numbers_and_types_that_no_tensor_gives_away_are_refused() -> None:
    x, counts = torch.zeros(3), torch.arange(3)
    state = problem((), 8)
    wrong(sigmoid, "expected tensors of type Float.*got Long", counts)
    wrong(
        vector_add, "expected tensors of type Byte, .*Long, Float.*got Bool", x.bool(), x.bool()
    )
    wrong(
        lltm,
        "expected tensors of type Float.*got Long",
        *(each.long() for each in cell_inputs((2, 3, 4))),
    )
    wrong(sample_normal, "expected tensors of type Float.*got Long", counts, counts, 4)
    wrong(
        sample_normal,
        "expected tensors of type Float.*got Long",
        counts,
        counts,
        4,
        dtype=x.dtype,
    )
    wrong(sample_normal, "num_samples.*got -1", x, x, -1)
    wrong(sample_normal, r"seed < 2\*\*64, got 18446744073709551616", x, x, 4, seed=2**64)
    wrong(sample_normal, "generation.*got 274877906944", x, x, 4, seed=1, generation=2**38)
    wrong(
        sample_normal,
        "seed or a generator, got both",
        x,
        x,
        4,
        seed=1,
        generator=torch.Generator(),
    )
    wrong(sample_normal, r"low <= high, got \(1, 0\)", x, x, 4, bounds=(1, 0))
    wrong(sample_normal, "tensor of seeds of the batch shape", x[None], x[None], 4, seed=1)
    wrong(
        sample_normal_rows,
        r"R >= 2, got \(1, 3\)",
        x[None],
        4,
        seed=counts[0],
        generation=counts[0],
    )
    wrong(cem_update, "num_elites from 1 to 8, got 9", *state, 9, maximize=False)
    wrong(cem_update, "got 'mean'", *state, 2, maximize=False, variance_about="mean")
    for name, value in (("smoothing", 2.0), ("std_smoothing", 0.0), ("mean_averaging", -1.0)):
        wrong(cem_update, f"{name}.* got", *state, 2, maximize=False, **{name: value})
    empty = torch.zeros(0, dtype=torch.float64)
    inputs, given = start((), 8, 65)
    wrong(cma_update, "at most 2048 candidates, got 65 and 8", *inputs, **given)
    noise = {"seed": counts[0], "generation": counts[0]}
    wrong(
        draw_correlated, "1 to 64 dimensions .*, got 65 and 8", inputs[2], inputs[5], 8, **noise
    )
    p = torch.zeros(4, 3, dtype=torch.float64)
    wrong(
        sample_categorical, r"V, K\) with 1 to 32767 values, got \(4, 0\)", p[:, :0], 8, **noise
    )
    wrong(sample_categorical, r"probabilities in \[0, 1\], got 2 to 2", p + 2, 8, **noise)
    learned = torch.nn.Parameter(p + 2)
    wrong(sample_categorical, r"probabilities in \[0, 1\], got 2 to 2", learned, 8, **noise)
    wrong(sample_permutation, r"probabilities in \[0, 1\], got nan", p / 0, 8, **noise)
    wrong(sample_permutation, r"n \+ 1, n\) with .*, got \(3, 3\)", p[:3], 8, **noise)
    wrong(cem_update, r"T >= 1, got \(0\)", *state, 2, maximize=False, extra_variance=empty)
