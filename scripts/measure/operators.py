"""Measure the operators: elementwise ones beside a device copy and PyTorch's own, LLTM beside plain PyTorch.

python scripts/measure operators --json operators.json

LLTM is measured as the tutorial "Custom C++ and CUDA Extensions" does it: the forward pass, and the backward
pass from the sum of both results, are timed by themselves, each from its call until the device is done.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from kernels.ops.elementwise import elementwise_mult, sigmoid, vector_add
from kernels.ops.lltm import LLTM, lltm_reference
from measure.provenance import Measured
from measure.timing import Function, Plan, event_times, times_of, wall_times

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
ELEMENTS, ROUNDS = {"cuda": 1 << 28, "cpu": 1 << 24}, 10
SIZES = {(16, 32, 128): Plan(25, 100, 0), (4096, 1024, 1024): Plan(3, 3, 0)}
"""Batch, inputs and states, those of the tutorial and large ones, and how often they are measured."""

PASSES = ("forward", "inference", "backward")


def cases(a: Tensor, b: Tensor, grad: Tensor) -> dict[str, tuple[Function, Function, int]]:
    """Return ours, PyTorch's and how many tensors it reads and writes by operator or ``<name>_backward``."""
    y = sigmoid(a)
    elementwise_mult(a[:1], b[:1])  # its backward operator is then there
    ours, torchs = torch.ops.cem_tetris, torch.ops.aten
    own, torch_own = (partial(each.sigmoid_backward.default, grad, y) for each in (ours, torchs))
    return {
        "sigmoid": (partial(sigmoid, a), partial(torch.sigmoid, a), 2),
        "vector_add": (partial(vector_add, a, b), partial(torch.add, a, b), 3),
        "elementwise_mult": (partial(elementwise_mult, a, b), partial(torch.mul, a, b), 3),
        "sigmoid_backward": (own, torch_own, 3),
        "elementwise_mult_backward": (
            partial(ours.elementwise_mult_backward.default, grad, a, b),
            lambda: (torch.mul(grad, b), torch.mul(grad, a)),
            5,
        ),
    }


def elementwise(device: str, dtype: torch.dtype) -> list[dict[str, Any]]:
    """Return a row for a copy and each elementwise operator.

    ``of_torch`` is PyTorch's time over ours, ``spread`` the range of the rounds' medians over the median.
    """
    generator = torch.Generator(device).manual_seed(0)
    kind: dict[str, Any] = {"device": device, "dtype": dtype, "generator": generator}
    a, b, c = (torch.randn(ELEMENTS[device], **kind) for _ in range(3))
    known = cases(a, b, c)
    ours = {name: case[0] for name, case in known.items()}
    functions = {"copy": a.clone, **ours, **{f"torch {name}": case[1] for name, case in known.items()}}
    timed, calls = (event_times, 10) if device == "cuda" else (wall_times, 3)
    times = timed(functions, Plan(ROUNDS, calls, 1))
    rows: list[dict[str, Any]] = []
    row: dict[str, Any]
    for name, tensors in [("copy", 2), *((name, case[2]) for name, case in known.items())]:
        found = times[name]
        spread = (found["most"] - found["least"]) / found["median"]
        row = {"operator": name, "dtype": str(dtype).removeprefix("torch."), "elements": ELEMENTS[device]}
        row |= {"us": found["median"], "spread": spread}
        row["gb_per_s"] = tensors * a.nbytes / found["median"] / 1e3
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
    """Return the times of the cell at a size; speed-ups are another implementation's median over ours."""
    batch, inputs, states = size
    torch.manual_seed(0)
    ours, plain = LLTM(inputs, states, device=device), PlainLLTM(inputs, states, device=device)
    plain.load_state_dict(ours.state_dict())
    torch.compiler.reset()
    cells = {"plain": plain, "ours": ours, "compile": torch.compile(plain, fullgraph=True)}
    state = (torch.randn(batch, states, device=device), torch.randn(batch, states, device=device))
    arguments = (torch.randn(batch, inputs, device=device), state)
    both = [(name, each) for name in cells for each in PASSES]
    timed = {f"{name} {each}": partial(_once, each, cells[name], arguments) for name, each in both}
    for once in timed.values():
        once()
    times = times_of(timed, plan, lambda once: cast(float, once()))
    microseconds = {name: {each: times[f"{name} {each}"] for each in PASSES} for name in cells}
    median = {name: {each: microseconds[name][each]["median"] for each in PASSES} for name in cells}
    speedups = {
        each: {name: median[name][each] / median["ours"][each] for name in cells if name != "ours"}
        for each in PASSES
    }
    sizes = {"batch": batch, "inputs": inputs, "states": states}
    return {**sizes, "microseconds": microseconds, "speedups": speedups}


def _once(which: str, cell: Any, arguments: Any) -> float:
    """Return the microseconds of one pass."""
    cell.zero_grad()
    with torch.set_grad_enabled(which != "inference"):
        start = _now(arguments[0])
        new_h, new_cell = cell(*arguments)
        between = _now(arguments[0])
    if which != "backward":
        return (between - start) * 1e6
    (new_h.sum() + new_cell.sum()).backward()
    return (_now(arguments[0]) - between) * 1e6


def _now(tensor: Tensor) -> float:
    """Return the time at which the device of a tensor is done."""
    if tensor.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter()


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return figures, of elementwise operators at float32 and of LLTM at the tutorial's size, and details."""
    rows = [row for dtype in DTYPES for row in elementwise(device, dtype)]
    sizes = [lltm(device, *each) for each in SIZES.items()]
    infix = "cpu." if device == "cpu" else ""
    figures = {
        f"{row['operator']}.{infix}{name}": row[name]
        for row in rows
        for name in ("fraction_of_copy", "of_torch")
        if row["dtype"] == "float32" and row["operator"] != "copy"
    }
    for each in ("forward", "backward"):
        figures[f"lltm.{infix}{each}_speedup"] = sizes[0]["speedups"][each]["plain"]
    return Measured(figures, {"elementwise": {"rows": rows}, "lltm": {"sizes": sizes}})
