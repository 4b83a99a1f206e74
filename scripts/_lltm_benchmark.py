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

LARGE_SIZE = (4096, 1024, 1024)


class PlainLLTM(LLTM):
    """The tutorial's module in plain PyTorch."""

    def forward(self, input: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:  # noqa: A002
        """Takes one step."""
        return lltm_reference(input, self.weights, self.bias, *state)


def measure_lltm(device: torch.device, quick: bool = False) -> dict[str, Any]:
    """Times the cell at the tutorial's size and at a large one.

    Args:
        device: a CPU or a CUDA device.
        quick: few repeats and no torch.compile, to see that everything works.

    Returns:
        ``sizes``: a list with, for each size, the microseconds of every implementation (median and spread of
        the repeats, in which the implementations take turns) and ``speedups``, the median of another one over
        the median of ours. ``figures``: the two speed-ups over plain at the tutorial's size, by name.
    """
    sizes = [_measure_size(device, size, quick) for size in (TUTORIAL_SIZE, LARGE_SIZE)]
    speedups = sizes[0]["speedups"]
    figures = {
        "lltm.forward_speedup": speedups["forward"]["plain"],
        "lltm.backward_speedup": speedups["backward"]["plain"],
    }
    return {"sizes": sizes, "figures": figures}


def _measure_size(device: torch.device, size: tuple[int, int, int], quick: bool) -> dict[str, Any]:
    batch, inputs, states = size
    if quick and size == LARGE_SIZE:
        batch, inputs, states = 256, 128, 128
    torch.manual_seed(0)
    ours = LLTM(inputs, states, device=device)
    plain = PlainLLTM(inputs, states, device=device)
    plain.load_state_dict(ours.state_dict())
    cells: dict[str, Any] = {"plain": plain, "ours": ours}
    if not quick:
        torch.compiler.reset()
        cells["compile"] = torch.compile(plain, fullgraph=True)
    arguments = (
        torch.randn(batch, inputs, device=device),
        (torch.randn(batch, states, device=device), torch.randn(batch, states, device=device)),
    )
    repeats, calls = _effort(device, batch * states, quick)
    measured: dict[str, dict[str, list[float]]] = {
        name: {"forward": [], "inference": [], "backward": []} for name in cells
    }
    for repeat in range(-1, repeats):  # the first is the warm-up
        for name, cell in cells.items():
            forward, backward = _time_training(cell, arguments, calls, device)
            inference = _time_inference(cell, arguments, calls, device)
            if repeat >= 0:
                measured[name]["forward"].append(forward)
                measured[name]["inference"].append(inference)
                measured[name]["backward"].append(backward)
    times = {
        name: {kind: _summary(values) for kind, values in kinds.items()} for name, kinds in measured.items()
    }
    return {
        "batch": batch,
        "inputs": inputs,
        "states": states,
        "repeats": repeats,
        "calls_per_repeat": calls,
        "microseconds": times,
        "speedups": {
            kind: {
                name: times[name][kind]["median"] / times["ours"][kind]["median"]
                for name in times
                if name != "ours"
            }
            for kind in ("forward", "inference", "backward")
        },
    }


def _effort(device: torch.device, elements: int, quick: bool) -> tuple[int, int]:
    """Returns repeats and calls in each: seconds of work in all."""
    if quick:
        return 3, 3
    if elements < 100_000:
        return 25, 100
    return (15, 10) if device.type == "cuda" else (3, 1)


def _time_training(cell: Any, arguments: Any, calls: int, device: torch.device) -> tuple[float, float]:
    """Returns the mean microseconds of a forward and of a backward pass."""
    forward = backward = 0.0
    for _ in range(calls):
        cell.zero_grad()
        _wait(device)
        start = time.perf_counter()
        new_h, new_cell = cell(*arguments)
        _wait(device)
        between = time.perf_counter()
        (new_h.sum() + new_cell.sum()).backward()
        _wait(device)
        backward += time.perf_counter() - between
        forward += between - start
    return forward / calls * 1e6, backward / calls * 1e6


@torch.no_grad()
def _time_inference(cell: Any, arguments: Any, calls: int, device: torch.device) -> float:
    """Returns the mean microseconds of a forward pass, where nothing will be differentiated."""
    total = 0.0
    for _ in range(calls):
        _wait(device)
        start = time.perf_counter()
        cell(*arguments)
        _wait(device)
        total += time.perf_counter() - start
    return total / calls * 1e6


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _summary(values: list[float]) -> dict[str, float]:
    lower, _, upper = statistics.quantiles(values, n=4)
    return {
        "median": statistics.median(values),
        "lower_quartile": lower,
        "upper_quartile": upper,
        "minimum": min(values),
        "maximum": max(values),
    }
