"""The elementwise operators beside a copy on the device and PyTorch's own, forward and backward."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from kernels.elementwise_mult import elementwise_mult
from kernels.sigmoid import sigmoid
from kernels.vector_add import vector_add
from measure.timing import Function, Plan, Times, event_times, graph_times, host_times, wall_times

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)

Case = tuple[Function, Function, int]
"""Ours, PyTorch's own as one call or a few, and how many tensors each reads or writes."""


def measure_elementwise(device: str, quick: bool) -> dict[str, Any]:
    """Measure the elementwise operators, each gradient's kernel as ``<name>_backward``.

    Returns:
        ``"figures"``: by name, at float32, ``<operator>.fraction_of_copy`` and ``<operator>.of_torch``,
        which is PyTorch's time over ours. ``"rows"``: one mapping a type and operator: ``us`` and
        ``torch_us`` are medians over single calls, on CUDA by ``event_times``; ``spread`` is the range of
        the medians of the rounds over the median. ``"sizes"``: by operator and number of float32 elements
        the device's time of a call among its like, ours and PyTorch's: the host has no part in it, and small
        tensors stay in the caches. ``"host_us"``: how long a call keeps the host busy, by operator.
    """
    largest = (20 if quick else 28) if device == "cuda" else (14 if quick else 24)
    rows = [row for dtype in _DTYPES for row in _measure_dtype(device, dtype, 2**largest, quick)]
    figures = {
        f"{row['operator']}.{name}": row[name]
        for row in rows
        for name in ("fraction_of_copy", "of_torch")
        if row["dtype"] == "float32" and row["operator"] != "copy"
    }
    functions = _functions(_cases(*_inputs(device, torch.float32, 2**10)))
    host_clock = host_times if device == "cuda" else wall_times
    host = host_clock(functions, Plan(rounds=3 if quick else 10))
    sizes: dict[str, dict[str, dict[str, float]]] = {}
    for power in range(10, largest + 1, 2):
        for name, both in _measure_size(device, 2**power, quick).items():
            sizes.setdefault(name, {})[str(2**power)] = both
    return {"figures": figures, "rows": rows, "sizes": sizes, "host_us": _ours_and_torchs(host)}


def _inputs(device: str, dtype: torch.dtype, elements: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator(device).manual_seed(0)
    a, b, c = (torch.randn(elements, device=device, dtype=dtype, generator=generator) for _ in range(3))
    return a, b, c


def _cases(a: Tensor, b: Tensor, grad: Tensor) -> dict[str, Case]:
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


def _functions(cases: dict[str, Case]) -> dict[str, Function]:
    ours = {name: case[0] for name, case in cases.items()}
    return {**ours, **{f"torch {name}": case[1] for name, case in cases.items()}}


def _measure_dtype(device: str, dtype: torch.dtype, elements: int, quick: bool) -> list[dict[str, Any]]:
    a, b, grad = _inputs(device, dtype, elements)
    cases = _cases(a, b, grad)
    functions: dict[str, Function] = {"copy": a.clone, **_functions(cases)}
    timed, calls = (event_times, 10) if device == "cuda" else (wall_times, 3)
    times = timed(functions, Plan(rounds=3 if quick else 10, calls=3 if quick else calls, warm_up=1))

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
    for name, (_, _, tensors) in cases.items():
        ours = row(name, tensors)
        ours["fraction_of_copy"] = ours["gb_per_s"] / rows[0]["gb_per_s"]
        ours["torch_us"] = times[f"torch {name}"]["median"]
        ours["of_torch"] = ours["torch_us"] / ours["us"]
        rows.append(ours)
    return rows


def _measure_size(device: str, elements: int, quick: bool) -> dict[str, dict[str, float]]:
    plan = Plan(rounds=3, calls=3 if quick else 10, warm_up=1)
    functions = _functions(_cases(*_inputs(device, torch.float32, elements)))
    if device == "cuda":
        return _ours_and_torchs(graph_times(functions, plan, captured=20 if elements <= 2**22 else 4))
    return _ours_and_torchs(wall_times(functions, plan))


def _ours_and_torchs(times: Times) -> dict[str, dict[str, float]]:
    names = [name for name in times if not name.startswith("torch ")]
    return {
        name: {"ours": times[name]["median"], "torch": times[f"torch {name}"]["median"]} for name in names
    }
