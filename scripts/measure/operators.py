"""Measure the operators: elementwise ones beside PyTorch's, LLTM beside plain PyTorch.

python scripts/measure operators --json operators.json

LLTM is measured as in the tutorial "Custom C++ and CUDA Extensions": the forward pass, and the
backward pass from the sum of both results, are timed separately, each from its call until the
device is done.
"""

import argparse
import time
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kernels.ops.elementwise.op import elementwise_mult, sigmoid, vector_add
from kernels.ops.lltm import LLTM, lltm_reference
from measure.provenance import Measured
from measure.timing import Function, Plan, event_times, times_of, wall_times

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
ELEMENTS = {"cuda": 1 << 28, "cpu": 1 << 24}
ROUNDS = 10
SIZES = {(16, 32, 128): Plan(25, 100, 0), (4096, 1024, 1024): Plan(3, 3, 0)}
"""Plans by batch, inputs and states: the tutorial's sizes, and large ones."""

PASSES = ("forward", "inference", "backward")


class Case(NamedTuple):
    """An operator to time.

    Attributes:
        ours: Calls our operator.
        torch: Calls PyTorch's.
        tensors: The number of tensors that the operator reads and writes.
    """

    ours: Function
    torch: Function
    tensors: int


def cases(a: Tensor, b: Tensor, grad: Tensor) -> dict[str, Case]:
    """Return the elementwise operators to time, by name: our function, PyTorch's, tensors.

    The number of tensors counts the inputs and the outputs of an operator, from which its
    bandwidth follows.

    Args:
        a: The first input.
        b: The second input, of the same shape.
        grad: The gradient of a loss by the output of an operator, of the same shape.
    """
    y = sigmoid(a)
    # A first call compiles and loads the extension, which registers the backward operators.
    elementwise_mult(a[:1], b[:1])
    ours = torch.ops.cem_tetris
    return {
        "sigmoid": Case(partial(sigmoid, a), partial(torch.sigmoid, a), 2),
        "vector_add": Case(partial(vector_add, a, b), partial(torch.add, a, b), 3),
        "elementwise_mult": Case(partial(elementwise_mult, a, b), partial(torch.mul, a, b), 3),
        "sigmoid_backward": Case(
            partial(ours.sigmoid_backward.default, grad, y),
            partial(torch.ops.aten.sigmoid_backward.default, grad, y),
            3,
        ),
        "elementwise_mult_backward": Case(
            partial(ours.elementwise_mult_backward.default, grad, a, b),
            lambda: (torch.mul(grad, b), torch.mul(grad, a)),
            5,
        ),
    }


def elementwise(device: str, dtype: torch.dtype) -> list[dict[str, Any]]:
    """Time the elementwise operators, ours and PyTorch's; return one row of results for each.

    The first row is a copy of a tensor, whose bandwidth is the most that others could reach. A
    row has the median time in microseconds ("us"), the range of the rounds' medians divided by
    the median ("spread"), and the bandwidth. Other rows also have that as a fraction of the
    bandwidth of the copy, and PyTorch's time divided by ours ("of_torch").
    """
    count = ELEMENTS[device]
    generator = torch.Generator(device).manual_seed(0)
    a, b, grad = (
        torch.randn(count, device=device, dtype=dtype, generator=generator) for _ in range(3)
    )
    # Functions to time by name, and the tensors that each of ours reads and writes.
    functions: dict[str, Function] = {"copy": a.clone}
    tensors = {"copy": 2}
    for name, case in cases(a, b, grad).items():
        functions[name] = case.ours
        functions[f"torch {name}"] = case.torch
        tensors[name] = case.tensors
    if device == "cuda":
        times = event_times(functions, Plan(ROUNDS, calls=10, warm_up=1))
    else:
        times = wall_times(functions, Plan(ROUNDS, calls=3, warm_up=1))
    rows: list[dict[str, Any]] = []
    for name, tensor_count in tensors.items():
        statistics = times[name]
        median = statistics["median"]  # In microseconds.
        row: dict[str, Any] = {
            "operator": name,
            "dtype": str(dtype).removeprefix("torch."),
            "elements": count,
            "us": median,
            "spread": (statistics["most"] - statistics["least"]) / median,
            "gb_per_s": tensor_count * a.nbytes / median / 1e3,
        }
        if name != "copy":
            row["torch_us"] = times[f"torch {name}"]["median"]
            row["fraction_of_copy"] = row["gb_per_s"] / rows[0]["gb_per_s"]
            row["of_torch"] = row["torch_us"] / row["us"]
        rows.append(row)
    return rows


class PlainLLTM(LLTM):
    """The tutorial's module in plain PyTorch."""

    def forward(self, input: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:  # noqa: A002
        """Take one step."""
        return lltm_reference(input, self.weights, self.bias, *state)


def lltm(device: str, size: tuple[int, int, int], plan: Plan) -> dict[str, Any]:
    """Time a recurrent cell, the LLTM, in three versions: ours, PyTorch's and torch.compile's.

    Args:
        device: The device of the cells.
        size: The size of the batch, and the numbers of inputs and of states.
        plan: How often a pass is timed.

    Returns:
        The size; the microseconds of every cell by pass: forward, forward without gradients
        and backward; and the speed-up of ours, which is the other cell's time divided by ours.
    """
    batch, inputs, states = size
    torch.manual_seed(0)
    ours = LLTM(inputs, states, device=device)
    plain = PlainLLTM(inputs, states, device=device)
    plain.load_state_dict(ours.state_dict())
    torch.compiler.reset()
    cells = {"plain": plain, "ours": ours, "compile": torch.compile(plain, fullgraph=True)}
    hidden = torch.randn(batch, states, device=device)
    cell_state = torch.randn(batch, states, device=device)
    arguments = (torch.randn(batch, inputs, device=device), (hidden, cell_state))
    functions = {}
    for name, cell in cells.items():
        for pass_name in PASSES:
            time_pass = partial(_time_pass, pass_name, cell, arguments)
            time_pass()  # The first call compiles.
            functions[f"{name} {pass_name}"] = time_pass
    # The functions time themselves, because only a part of a call is the pass.
    times = times_of(functions, plan, lambda time_pass: time_pass())
    microseconds: dict[str, Any] = {name: {} for name in cells}
    speedups: dict[str, Any] = {pass_name: {} for pass_name in PASSES}
    for pass_name in PASSES:
        our_median = times[f"ours {pass_name}"]["median"]
        for name in cells:
            statistics = times[f"{name} {pass_name}"]
            microseconds[name][pass_name] = statistics
            if name != "ours":
                speedups[pass_name][name] = statistics["median"] / our_median
    return {
        "batch": batch,
        "inputs": inputs,
        "states": states,
        "microseconds": microseconds,
        "speedups": speedups,
    }


def _time_pass(pass_name: str, cell: Any, arguments: Any) -> float:
    """Run a forward and perhaps a backward pass of a cell; return the pass's microseconds."""
    cell.zero_grad()
    with torch.set_grad_enabled(pass_name != "inference"):
        start_time = _wait(arguments[0])
        new_h, new_cell = cell(*arguments)
        forward_end = _wait(arguments[0])
    if pass_name != "backward":
        return (forward_end - start_time) * 1e6
    (new_h.sum() + new_cell.sum()).backward()
    return (_wait(arguments[0]) - forward_end) * 1e6


def _wait(tensor: Tensor) -> float:
    """Wait for the device of a tensor, and return the time."""
    if tensor.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter()


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Time our operators: elementwise ones in every dtype, and the recurrent cell LLTM.

    The figures of an elementwise operator are for float32: its bandwidth as a fraction of a
    copy's, and its speed-up over PyTorch. Those of LLTM are its speed-ups over plain PyTorch at
    the first size, which is the size of PyTorch's tutorial. The details have all results.
    """
    rows = []
    for dtype in DTYPES:
        rows += elementwise(device, dtype)
    sizes = [lltm(device, size, plan) for size, plan in SIZES.items()]
    infix = "cpu." if device == "cpu" else ""  # Names of figures without it are a GPU's.
    figures = {}
    for row in rows:
        operator = row["operator"]
        if row["dtype"] == "float32" and operator != "copy":
            figures[f"{operator}.{infix}fraction_of_copy"] = row["fraction_of_copy"]
            figures[f"{operator}.{infix}of_torch"] = row["of_torch"]
    tutorial_speedups = sizes[0]["speedups"]
    for pass_name in ("forward", "backward"):
        figures[f"lltm.{infix}{pass_name}_speedup"] = tutorial_speedups[pass_name]["plain"]
    return Measured(figures, {"elementwise": {"rows": rows}, "lltm": {"sizes": sizes}})
