"""Compare our elementwise operators with PyTorch's, and our LLTM with plain PyTorch.

python scripts/measure operators --json operators.json

LLTM is measured as in the tutorial "Custom C++ and CUDA Extensions": the forward pass and the
backward pass are timed separately, each from its call until the device is done. The loss of the
backward pass is the sum of both results.
"""

import argparse
import time
from collections.abc import Mapping
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
"""Plans by (batch size, inputs, states): the tutorial's sizes, and large ones."""

PASSES = ("forward", "inference", "backward")


class Case(NamedTuple):
    """An operator to time.

    Attributes:
        ours: Calls our operator.
        torch: Calls PyTorch's operator.
        tensors: The number of tensors that the operator reads and writes.
    """

    ours: Function
    torch: Function
    tensors: int


def cases(a: Tensor, b: Tensor, grad: Tensor) -> dict[str, Case]:
    """Return the elementwise operators to time, by name.

    A case has our function, PyTorch's function, and the number of tensors that the operator
    reads and writes, from which the bandwidth is computed.

    Args:
        a: The first input.
        b: The second input, of the same shape.
        grad: The gradient of a loss with respect to an operator's output, of the same shape.
    """
    y = sigmoid(a)  # The backward operator of sigmoid takes the output, not the input.
    # The first call of an operator loads the library that registers its backward operator.
    elementwise_mult(a[:1], b[:1])
    ours = torch.ops.cem_tetris
    return {
        "sigmoid": Case(partial(sigmoid, a), partial(torch.sigmoid, a), tensors=2),
        "vector_add": Case(partial(vector_add, a, b), partial(torch.add, a, b), tensors=3),
        "elementwise_mult": Case(
            partial(elementwise_mult, a, b), partial(torch.mul, a, b), tensors=3
        ),
        "sigmoid_backward": Case(
            partial(ours.sigmoid_backward.default, grad, y),
            partial(torch.ops.aten.sigmoid_backward.default, grad, y),
            tensors=3,
        ),
        "elementwise_mult_backward": Case(
            partial(ours.elementwise_mult_backward.default, grad, a, b),
            lambda: (torch.mul(grad, b), torch.mul(grad, a)),
            tensors=5,  # It reads three tensors, and writes a gradient for each input.
        ),
    }


def elementwise(device: str, dtype: torch.dtype) -> list[dict[str, Any]]:
    """Time our and PyTorch's elementwise operators, and return a row of results for each.

    The first row is the copy of a tensor, whose bandwidth no operator can exceed. All rows have

    us: The median time in microseconds.
    spread: The range of the rounds' medians divided by the median time.
    gb_per_s: The bandwidth: how many gigabytes are read and written per second.

    Rows of operators also have

    torch_us: The median time of PyTorch's operator.
    fraction_of_copy: The bandwidth divided by that of the copy.
    of_torch: PyTorch's time divided by ours.
    """
    count = ELEMENTS[device]
    generator = torch.Generator(device).manual_seed(0)
    a, b, grad = (
        torch.randn(count, device=device, dtype=dtype, generator=generator) for _ in range(3)
    )
    functions: dict[str, Function] = {"copy": a.clone}
    # The number of tensors that an operator reads and writes. A copy reads one and writes one.
    tensor_counts = {"copy": 2}
    for name, case in cases(a, b, grad).items():
        functions[name] = case.ours
        functions[f"torch {name}"] = case.torch
        tensor_counts[name] = case.tensors
    if device == "cuda":
        times = event_times(functions, Plan(ROUNDS, calls=10, warm_up=1))
    else:
        times = wall_times(functions, Plan(ROUNDS, calls=3, warm_up=1))
    rows: list[dict[str, Any]] = []
    for name, tensor_count in tensor_counts.items():
        row: dict[str, Any] = {
            "operator": name,
            "dtype": str(dtype).removeprefix("torch."),
            "elements": count,
            **_describe_speed(times[name], tensor_count * a.nbytes),
        }
        if name != "copy":
            row["torch_us"] = times[f"torch {name}"]["median"]
            # The first row is the copy.
            row["fraction_of_copy"] = row["gb_per_s"] / rows[0]["gb_per_s"]
            row["of_torch"] = row["torch_us"] / row["us"]
        rows.append(row)
    return rows


def _describe_speed(statistics: Mapping[str, float], num_bytes: int) -> dict[str, float]:
    """Return the median, the spread and the bandwidth of calls that move a number of bytes."""
    median = statistics["median"]  # In microseconds.
    return {
        "us": median,
        "spread": (statistics["most"] - statistics["least"]) / median,
        "gb_per_s": num_bytes / median / 1e3,  # 1,000 bytes/us are 1 GB/s.
    }


class PlainLLTM(LLTM):
    """The tutorial's module in plain PyTorch."""

    def forward(self, input: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:  # noqa: A002
        """Return the new hidden state and the new cell state."""
        return lltm_reference(input, self.weights, self.bias, *state)


def lltm(device: str, size: tuple[int, int, int], plan: Plan) -> dict[str, Any]:
    """Time the passes of three versions of the recurrent cell LLTM.

    The versions are ours, plain PyTorch ("plain"), and plain PyTorch with torch.compile
    ("compile"). The passes are "forward", "inference" (forward without gradients) and
    "backward".

    Args:
        device: The device of the cells.
        size: The batch size, and the numbers of inputs and of states.
        plan: How often a pass is timed.

    Returns:
        batch, inputs, states: The size.
        microseconds: Statistics of the microseconds, by version and pass.
        speedups: By pass and version, the median time of another version divided by ours.
    """
    batch, inputs, states = size
    cells = _make_cells(device, inputs, states)
    hidden = torch.randn(batch, states, device=device)
    cell_state = torch.randn(batch, states, device=device)
    arguments = (torch.randn(batch, inputs, device=device), (hidden, cell_state))
    functions = {}
    for name, cell in cells.items():
        for pass_name in PASSES:
            time_pass = partial(_time_pass, pass_name, cell, arguments)
            time_pass()  # The first call compiles.
            functions[f"{name} {pass_name}"] = time_pass
    # `time_pass` returns the microseconds itself, because it also does work that must not be
    # timed, such as the forward pass before a backward pass.
    times = times_of(functions, plan, time_call=lambda time_pass: time_pass())
    statistics_by_cell = {
        name: {pass_name: times[f"{name} {pass_name}"] for pass_name in PASSES}
        for name in cells
    }
    return {
        "batch": batch,
        "inputs": inputs,
        "states": states,
        "microseconds": statistics_by_cell,
        "speedups": {name: _speedups(statistics_by_cell, name) for name in PASSES},
    }


def _make_cells(device: str, inputs: int, states: int) -> dict[str, Any]:
    """Return the three versions of the cell by name, which have the same weights."""
    torch.manual_seed(0)
    ours = LLTM(inputs, states, device=device)
    plain = PlainLLTM(inputs, states, device=device)
    plain.load_state_dict(ours.state_dict())
    torch.compiler.reset()
    return {"plain": plain, "ours": ours, "compile": torch.compile(plain, fullgraph=True)}


def _speedups(statistics_by_cell: Mapping[str, Any], pass_name: str) -> dict[str, float]:
    """Return the median time of a pass in each other cell, divided by its time in ours."""
    medians = {name: passes[pass_name]["median"] for name, passes in statistics_by_cell.items()}
    our_median = medians.pop("ours")
    return {name: median / our_median for name, median in medians.items()}


def _time_pass(pass_name: str, cell: Any, arguments: Any) -> float:
    """Run a pass of a cell, and return its microseconds.

    A backward pass needs a forward pass before it, which does not count. The loss is the sum of
    both results.
    """
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
    """Wait until the device of a tensor has finished, and return the time in seconds."""
    if tensor.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter()


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Time our elementwise operators in every dtype, and our recurrent cell LLTM.

    The figures of an elementwise operator are for float32: its bandwidth divided by that of a
    copy, and PyTorch's time divided by ours. The figures of LLTM are speed-ups over plain
    PyTorch at the size of PyTorch's tutorial. The details have all results.
    """
    rows = []
    for dtype in DTYPES:
        rows += elementwise(device, dtype)
    sizes = [lltm(device, size, plan) for size, plan in SIZES.items()]
    infix = "cpu." if device == "cpu" else ""  # The figures of a GPU have no infix.
    figures = {}
    for row in rows:
        operator = row["operator"]
        if row["dtype"] == "float32" and operator != "copy":
            figures[f"{operator}.{infix}fraction_of_copy"] = row["fraction_of_copy"]
            figures[f"{operator}.{infix}of_torch"] = row["of_torch"]
    tutorial_speedups = sizes[0]["speedups"]  # The first size is the tutorial's.
    for pass_name in ("forward", "backward"):
        figures[f"lltm.{infix}{pass_name}_speedup"] = tutorial_speedups[pass_name]["plain"]
    return Measured(figures, {"elementwise": {"rows": rows}, "lltm": {"sizes": sizes}})
