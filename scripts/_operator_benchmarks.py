"""How fast the elementwise operators are, beside PyTorch's own and beside a copy, which only moves bytes.

An operator's bandwidth counts the bytes that it has to move, every input read once and every output written
once; the fraction is that of the copy's bandwidth. All are measured in turns on the same tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from _timing import Function, Plan, Timing, event_times, graph_times, host_times, wall_times
from torch import Tensor

from kernels.elementwise_mult import elementwise_mult
from kernels.sigmoid import sigmoid
from kernels.vector_add import vector_add

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class _Case:
    """An operator, PyTorch's own, and the tensors that each reads or writes.

    Attributes:
        ours: Calls the operator.
        torchs: Calls PyTorch's own, as one call or as the few that do the same.
        tensors: How many are read or written.
    """

    ours: Function
    torchs: Function
    tensors: int


def measure_elementwise(device: torch.device | str, quick: bool = False) -> dict[str, Any]:
    """Measure the elementwise operators, each gradient's kernel as ``<name>_backward``.

    Args:
        device: The current CUDA device, or the CPU.
        quick: Smaller tensors and fewer calls, to see that it works.

    Returns:
        ``"figures"``: by name, at float32, ``<operator>.fraction_of_copy`` and ``<operator>.of_torch``,
        which is PyTorch's time over ours. ``"rows"``: one mapping a type and operator: ``us`` and
        ``torch_us`` are medians over single calls, on CUDA by ``event_times``; ``spread`` is the range of
        the medians of the turns over the median. ``"sizes"``: by operator and number of float32 elements
        the device's time of a call among its like, ours and PyTorch's: the host has no part in it, and small
        tensors stay in the caches. ``"host_us"``: how long a call keeps the host busy, by operator.
    """
    device = torch.device(device)
    largest = (20 if quick else 28) if device.type == "cuda" else (14 if quick else 24)
    rows = [row for dtype in _DTYPES for row in _measure_dtype(device, dtype, 2**largest, quick)]
    figures = {
        f"{row['operator']}.{name}": row[name]
        for row in rows
        for name in ("fraction_of_copy", "of_torch")
        if row["dtype"] == "float32" and row["operator"] != "copy"
    }
    plan = Plan(turns=3 if quick else 10)
    functions = _functions(_cases(*_inputs(device, torch.float32, 2**10)))
    host = host_times(functions, plan) if device.type == "cuda" else wall_times(functions, plan)
    sizes = [2**power for power in range(10, largest + 1, 2)]
    return {
        "figures": figures,
        "rows": rows,
        "sizes": _measure_sizes(device, sizes, quick),
        "host_us": _ours_and_torchs(host),
    }


def _inputs(device: torch.device, dtype: torch.dtype, elements: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator(device).manual_seed(0)
    a, b, c = (torch.randn(elements, device=device, dtype=dtype, generator=generator) for _ in range(3))
    return a, b, c


def _cases(a: Tensor, b: Tensor, grad: Tensor) -> dict[str, _Case]:
    y = sigmoid(a)
    elementwise_mult(a[:1], b[:1])  # its backward operator is then there
    ops = torch.ops.cem_tetris
    return {
        "sigmoid": _Case(partial(sigmoid, a), partial(torch.sigmoid, a), 2),
        "vector_add": _Case(partial(vector_add, a, b), partial(torch.add, a, b), 3),
        "elementwise_mult": _Case(partial(elementwise_mult, a, b), partial(torch.mul, a, b), 3),
        "sigmoid_backward": _Case(
            partial(ops.sigmoid_backward.default, grad, y),
            partial(torch.ops.aten.sigmoid_backward.default, grad, y),
            3,
        ),
        "elementwise_mult_backward": _Case(
            partial(ops.elementwise_mult_backward.default, grad, a, b),
            lambda: (torch.mul(grad, b), torch.mul(grad, a)),
            5,
        ),
    }


def _functions(cases: dict[str, _Case]) -> dict[str, Function]:
    ours = {name: case.ours for name, case in cases.items()}
    return {**ours, **{f"torch {name}": case.torchs for name, case in cases.items()}}


def _measure_dtype(
    device: torch.device, dtype: torch.dtype, elements: int, quick: bool
) -> list[dict[str, Any]]:
    a, b, grad = _inputs(device, dtype, elements)
    cases = _cases(a, b, grad)
    functions: dict[str, Function] = {"copy": a.clone, **_functions(cases)}
    timed, calls = (event_times, 10) if device.type == "cuda" else (wall_times, 3)
    times = timed(functions, Plan(turns=3 if quick else 10, calls=3 if quick else calls, warm_up=1))

    def row(name: str, tensors: int) -> dict[str, Any]:
        time = times[name]
        return {
            "operator": name,
            "dtype": str(dtype).removeprefix("torch."),
            "elements": elements,
            "us": time.median,
            "spread": (time.most - time.least) / time.median,
            "gb_per_s": tensors * a.nbytes / time.median / 1e3,
        }

    rows = [row("copy", 2)]
    for name, case in cases.items():
        ours = row(name, case.tensors)
        ours["fraction_of_copy"] = ours["gb_per_s"] / rows[0]["gb_per_s"]
        ours["torch_us"] = times[f"torch {name}"].median
        ours["of_torch"] = ours["torch_us"] / ours["us"]
        rows.append(ours)
    return rows


def _measure_sizes(
    device: torch.device, sizes: list[int], quick: bool
) -> dict[str, dict[str, dict[str, float]]]:
    plan = Plan(turns=3, calls=3 if quick else 10, warm_up=1)
    result: dict[str, dict[str, dict[str, float]]] = {}
    for elements in sizes:
        functions = _functions(_cases(*_inputs(device, torch.float32, elements)))
        if device.type == "cuda":
            times = graph_times(functions, plan, captured=20 if elements <= 2**22 else 4)
        else:
            times = wall_times(functions, plan)
        for name, both in _ours_and_torchs(times).items():
            result.setdefault(name, {})[str(elements)] = both
    return result


def _ours_and_torchs(times: dict[str, Timing]) -> dict[str, dict[str, float]]:
    names = [name for name in times if not name.startswith("torch ")]
    return {name: {"ours": times[name].median, "torch": times[f"torch {name}"].median} for name in names}
