"""Measure the operators: elementwise ones beside a device copy and PyTorch's own, LLTM beside plain PyTorch.

python scripts/benchmark_operators.py --json operators.json
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kernels.elementwise_mult import elementwise_mult
from kernels.sigmoid import sigmoid
from kernels.vector_add import vector_add
from measure.cli import add_quick, measurement
from measure.lltm import measure_lltm
from measure.provenance import Measured
from measure.timing import Function, Plan, event_times, wall_times
from tetris.commands.command_line import run

DTYPES = (torch.float32, torch.float16, torch.bfloat16)

Case = tuple[Function, Function, int]
"""Ours, PyTorch's own as one call or a few, and how many tensors each reads or writes."""


def cases(a: Tensor, b: Tensor, grad: Tensor) -> dict[str, Case]:
    """Return the elementwise operators, each gradient's kernel as ``<name>_backward``."""
    y = sigmoid(a)
    elementwise_mult(a[:1], b[:1])  # its backward operator is then there
    ours, torchs = torch.ops.cem_tetris, torch.ops.aten
    return {
        "sigmoid": (partial(sigmoid, a), partial(torch.sigmoid, a), 2),
        "vector_add": (partial(vector_add, a, b), partial(torch.add, a, b), 3),
        "elementwise_mult": (partial(elementwise_mult, a, b), partial(torch.mul, a, b), 3),
        "sigmoid_backward": (
            partial(ours.sigmoid_backward.default, grad, y),
            partial(torchs.sigmoid_backward.default, grad, y),
            3,
        ),
        "elementwise_mult_backward": (
            partial(ours.elementwise_mult_backward.default, grad, a, b),
            lambda: (torch.mul(grad, b), torch.mul(grad, a)),
            5,
        ),
    }


def measure_elementwise(device: str, quick: bool) -> dict[str, Any]:
    """Measure the elementwise operators.

    Returns:
        ``"figures"``: by name, at float32, ``<operator>.fraction_of_copy`` and ``<operator>.of_torch``,
        which is PyTorch's time over ours. ``"rows"``: one mapping a type and operator: ``us`` and
        ``torch_us`` are medians over single calls, on CUDA by ``event_times``; ``spread`` is the range of
        the medians of the rounds over the median.
    """
    largest = (20 if quick else 28) if device == "cuda" else (14 if quick else 24)
    rows = [row for dtype in DTYPES for row in _measure_dtype(device, dtype, 2**largest, quick)]
    figures = {
        f"{row['operator']}.{name}": row[name]
        for row in rows
        for name in ("fraction_of_copy", "of_torch")
        if row["dtype"] == "float32" and row["operator"] != "copy"
    }
    return {"figures": figures, "rows": rows}


def _measure_dtype(device: str, dtype: torch.dtype, elements: int, quick: bool) -> list[dict[str, Any]]:
    generator = torch.Generator(device).manual_seed(0)
    a, b, c = (torch.randn(elements, device=device, dtype=dtype, generator=generator) for _ in range(3))
    known = cases(a, b, c)
    ours = {name: case[0] for name, case in known.items()}
    functions = {"copy": a.clone, **ours, **{f"torch {name}": case[1] for name, case in known.items()}}
    timed, calls = (event_times, 10) if device == "cuda" else (wall_times, 3)
    times = timed(functions, Plan(3 if quick else 10, 3 if quick else calls, 1))

    def row(name: str, tensors: int) -> dict[str, Any]:
        time = times[name]
        return {
            "operator": name,
            "dtype": str(dtype).removeprefix("torch."),
            "elements": elements,
            "us": time["median"],
            "spread": (time["most"] - time["least"]) / time["median"],
            "gb_per_s": tensors * a.nbytes / time["median"] / 1e3,
        }

    rows = [row("copy", 2)]
    for name, (_, _, tensors) in known.items():
        own, torch_us = row(name, tensors), times[f"torch {name}"]["median"]
        shares = {"fraction_of_copy": own["gb_per_s"] / rows[0]["gb_per_s"], "of_torch": torch_us / own["us"]}
        rows.append({**own, "torch_us": torch_us, **shares})
    return rows


def measure(arguments: argparse.Namespace, device: str) -> Measured:
    """Return figures and details."""
    both = {
        "elementwise": measure_elementwise(device, arguments.quick),
        "lltm": measure_lltm(device, arguments.quick),
    }
    figures = {name: value for each in both.values() for name, value in each["figures"].items()}
    if device == "cpu":
        figures = {name.replace(".", ".cpu.", 1): value for name, value in figures.items()}
    return figures, {"quick": arguments.quick, **both}, {}


main = measurement(measure, __doc__, add_quick)

if __name__ == "__main__":
    run(main)
