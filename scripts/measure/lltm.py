"""The LLTM cell: the plain PyTorch module, the same compiled, and ours, forward and backward.

The method is that of the tutorial "Custom C++ and CUDA Extensions": the forward pass and the backward pass
from the sum of both results are timed by themselves, each from its call until the device is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from kernels.lltm import LLTM, lltm_reference
from measure.timing import Plan, times_of

SIZES = {(16, 32, 128): Plan(25, 100, 0), (4096, 1024, 1024): Plan(3, 3, 0)}
QUICK_SIZES = {(16, 32, 128): Plan(3, 3, 0), (256, 128, 128): Plan(3, 3, 0)}
"""Batch, inputs and states, those of the tutorial and large ones, and how often they are measured."""

PASSES = ("forward", "inference", "backward")


class PlainLLTM(LLTM):
    """The tutorial's module in plain PyTorch."""

    def forward(self, input: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:  # noqa: A002
        """Take one step."""
        return lltm_reference(input, self.weights, self.bias, *state)


def measure_lltm(device: str, quick: bool) -> dict[str, Any]:
    """Time the cell at the tutorial's size and at a large one; quick: few repeats and no torch.compile.

    Returns:
        ``sizes``: for each size, the microseconds of every implementation and pass, see `timing.Times`, and
        ``speedups``, the median of another one over the median of ours. ``figures``: the speed-ups over plain
        at the tutorial's size, by name.
    """
    sizes = [_measure_size(device, *each, quick) for each in (QUICK_SIZES if quick else SIZES).items()]
    over_plain = {each: sizes[0]["speedups"][each]["plain"] for each in ("forward", "backward")}
    return {"sizes": sizes, "figures": {f"lltm.{each}_speedup": value for each, value in over_plain.items()}}


def _measure_size(device: str, size: tuple[int, int, int], plan: Plan, quick: bool) -> dict[str, Any]:
    batch, inputs, states = size
    torch.manual_seed(0)
    ours, plain = LLTM(inputs, states, device=device), PlainLLTM(inputs, states, device=device)
    plain.load_state_dict(ours.state_dict())
    cells: dict[str, Any] = {"plain": plain, "ours": ours}
    if not quick:
        torch.compiler.reset()
        cells["compile"] = torch.compile(plain, fullgraph=True)
    state = (torch.randn(batch, states, device=device), torch.randn(batch, states, device=device))
    arguments = (torch.randn(batch, inputs, device=device), state)
    timed = {
        f"{name} {each}": partial(_once, each, cell, arguments, partial(_now, device))
        for name, cell in cells.items()
        for each in PASSES
    }
    for once in timed.values():
        once()
    times = times_of(timed, plan, lambda once: cast(float, once()))
    return {
        "batch": batch,
        "inputs": inputs,
        "states": states,
        "microseconds": {name: {each: times[f"{name} {each}"] for each in PASSES} for name in cells},
        "speedups": {
            each: {
                name: times[f"{name} {each}"]["median"] / times[f"ours {each}"]["median"]
                for name in cells
                if name != "ours"
            }
            for each in PASSES
        },
    }


def _once(which: str, cell: Any, arguments: Any, now: Callable[[], float]) -> float:
    """Return the microseconds of one pass."""
    cell.zero_grad()
    with torch.set_grad_enabled(which != "inference"):
        start = now()
        new_h, new_cell = cell(*arguments)
        between = now()
    if which != "backward":
        return (between - start) * 1e6
    (new_h.sum() + new_cell.sum()).backward()
    return (now() - between) * 1e6


def _now(device: str) -> float:
    """Return the time at which the device is done."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()
