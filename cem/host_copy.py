"""Asynchronous copies of tensors to the host."""

from __future__ import annotations

import time
from collections.abc import Mapping

import torch
from torch import Tensor


class HostCopy:
    """An asynchronous copy of tensors to the host, ordered with the work of the current stream.

    Tensors of a CUDA device are packed: one asynchronous copy a dtype into page-locked memory. An event on
    the current stream marks the end; waiting for it does not wait for later work. Tensors of the CPU, and of
    devices without events, are ready at once.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        """Queue the copies.

        Args:
            tensors: Any shape, dtype and device, by name. Not changed; later work on the same stream may
                change them.
        """
        self._values: dict[str, Tensor] = {}
        self._events: list[torch.cuda.Event] = []
        packs: dict[torch.device, dict[torch.dtype, dict[str, Tensor]]] = {}
        for name, tensor in tensors.items():
            if tensor.device.type == "cuda":
                packs.setdefault(tensor.device, {}).setdefault(tensor.dtype, {})[name] = tensor.detach()
            else:
                self._values[name] = tensor.detach().to("cpu", copy=True)
        for device, pack in packs.items():
            for same in pack.values():
                self._values |= _queue(same)
            # With timing, for seconds_since; blocking, so that waiting for it does not spin.
            event = torch.cuda.Event(enable_timing=True, blocking=True)
            event.record(torch.cuda.current_stream(device))
            self._events.append(event)
        self._queued_at = time.monotonic()

    @property
    def ready(self) -> bool:
        """Whether all values are on the host; does not wait."""
        return all(event.query() for event in self._events)

    def values(self) -> dict[str, Tensor]:
        """Wait for these copies alone, and return them: tensors on the CPU, not to be changed."""
        for event in self._events:
            event.synchronize()
        return self._values

    def seconds_since(self, earlier: HostCopy) -> float:
        """Return the seconds between the completion of an earlier copy and of this one.

        On a CUDA device they are measured by its clock.

        Args:
            earlier: A copy from the same device. Both must be ready.
        """
        if self._events and earlier._events:
            return float(earlier._events[-1].elapsed_time(self._events[-1])) / 1e3
        return self._queued_at - earlier._queued_at


def _queue(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Queue one copy of tensors of one CUDA device and dtype; return the host tensors."""
    packed = torch.cat([tensor.reshape(-1) for tensor in tensors.values()])
    host = torch.empty(packed.shape, dtype=packed.dtype, device="cpu", pin_memory=True).copy_(
        packed, non_blocking=True
    )
    parts = host.split([tensor.numel() for tensor in tensors.values()])
    return {
        name: part.view(tensor.shape) for (name, tensor), part in zip(tensors.items(), parts, strict=True)
    }
