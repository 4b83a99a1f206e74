"""The LLTM cell: the plain PyTorch module, the same compiled, and ours, forward and backward.

The method is that of the tutorial "Custom C++ and CUDA Extensions": the forward pass and the backward pass
from the sum of both results are timed by themselves, each from its call until the device is done.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
from torch import Tensor

from kernels.lltm import LLTM, lltm_reference

TUTORIAL_SIZE = (16, 32, 128)
"""Batch, inputs and states of the tutorial."""

LARGE_SIZE, LARGE_QUICK = (4096, 1024, 1024), (256, 128, 128)
PASSES = ("forward", "inference", "backward")


class PlainLLTM(LLTM):
    """The tutorial's module in plain PyTorch."""

    def forward(self, input: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:  # noqa: A002
        """Take one step."""
        return lltm_reference(input, self.weights, self.bias, *state)


def measure_lltm(device: torch.device, quick: bool = False) -> dict[str, Any]:
    """Time the cell at the tutorial's size and at a large one.

    Args:
        device: A CPU or a CUDA device.
        quick: Few repeats and no torch.compile, to see that everything works.

    Returns:
        ``sizes``: a list with, for each size, the microseconds of every implementation (median and spread of
        the repeats, in which the implementations are interleaved) and ``speedups``, the median of another one
        over the median of ours. ``figures``: the two speed-ups over plain at the tutorial's size, by name.
    """
    large = LARGE_QUICK if quick else LARGE_SIZE
    sizes = [_measure_size(device, size, quick) for size in (TUTORIAL_SIZE, large)]
    figures = {
        f"lltm.{each}_speedup": sizes[0]["speedups"][each]["plain"] for each in ("forward", "backward")
    }
    return {"sizes": sizes, "figures": figures}


def _measure_size(device: torch.device, size: tuple[int, int, int], quick: bool) -> dict[str, Any]:
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
    repeats, calls = _effort(device, batch * states, quick)
    measured: dict[str, dict[str, list[float]]] = {name: {each: [] for each in PASSES} for name in cells}
    for repeat in range(-1, repeats):  # the first is the warm-up
        for name, cell in cells.items():
            forward, backward = _time_training(cell, arguments, calls, device)
            times = (forward, _time_inference(cell, arguments, calls, device), backward)
            for each, microseconds in zip(PASSES, times, strict=True):
                if repeat >= 0:
                    measured[name][each].append(microseconds)
    times_of = {
        name: {each: _summary(values) for each, values in passes.items()} for name, passes in measured.items()
    }
    return {
        "batch": batch,
        "inputs": inputs,
        "states": states,
        "repeats": repeats,
        "calls_per_repeat": calls,
        "microseconds": times_of,
        "speedups": {
            each: {
                name: times_of[name][each]["median"] / times_of["ours"][each]["median"]
                for name in times_of
                if name != "ours"
            }
            for each in PASSES
        },
    }


def _effort(device: torch.device, elements: int, quick: bool) -> tuple[int, int]:
    """Return repeats and calls in each: seconds of work in all."""
    if quick:
        return 3, 3
    if elements < 100_000:
        return 25, 100
    return (15, 10) if device.type == "cuda" else (3, 1)


def _time_training(cell: Any, arguments: Any, calls: int, device: torch.device) -> tuple[float, float]:
    """Return the mean microseconds of a forward and of a backward pass."""
    forward = backward = 0.0
    for _ in range(calls):
        cell.zero_grad()
        start = _now(device)
        new_h, new_cell = cell(*arguments)
        between = _now(device)
        (new_h.sum() + new_cell.sum()).backward()
        backward += _now(device) - between
        forward += between - start
    return forward / calls * 1e6, backward / calls * 1e6


@torch.no_grad()
def _time_inference(cell: Any, arguments: Any, calls: int, device: torch.device) -> float:
    """Return the mean microseconds of a forward pass, where nothing will be differentiated."""
    total = 0.0
    for _ in range(calls):
        start = _now(device)
        cell(*arguments)
        total += _now(device) - start
    return total / calls * 1e6


def _now(device: torch.device) -> float:
    """Return the time at which the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _summary(values: list[float]) -> dict[str, float]:
    lower, middle, upper = statistics.quantiles(values, n=4)
    ends = {"minimum": min(values), "maximum": max(values)}
    return {"median": middle, "lower_quartile": lower, "upper_quartile": upper, **ends}
