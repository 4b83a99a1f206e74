"""Copies to the host that a device makes when its work gets there, while nobody waits for it."""

from __future__ import annotations

import time
from collections.abc import Mapping

import torch
from torch import Tensor


class HostCopy:
    """Tensors on their way to the host, as they are when the device gets here in its work.

    From a CUDA device they go packed, one asynchronous copy a dtype into page-locked memory, and an event on
    the current stream says when they are there: waiting for it does not wait for what is queued after it.
    From the CPU, and from devices without such events, they are there at once.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        """Queue the copies.

        Args:
            tensors: Any shape, dtype and device, by name. Not changed; they may be changed from now on by
                work on the same stream.
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
            # With times, for seconds_since; blocking, so that waiting for it leaves the processor alone.
            event = torch.cuda.Event(enable_timing=True, blocking=True)
            event.record(torch.cuda.current_stream(device))
            self._events.append(event)
        self._queued_at = time.monotonic()

    @property
    def ready(self) -> bool:
        """Whether all values are there; does not wait."""
        return all(event.query() for event in self._events)

    def values(self) -> dict[str, Tensor]:
        """Wait for these copies alone, and return them: tensors on the CPU, not to be changed."""
        for event in self._events:
            event.synchronize()
        return self._values

    def seconds_since(self, earlier: HostCopy) -> float:
        """Return the seconds from the moment an earlier copy was there to the moment this one was.

        On a CUDA device it is the device's clock that tells, whenever the host looked.

        Args:
            earlier: One of the same device. Both must be ready.
        """
        if self._events and earlier._events:
            return float(earlier._events[-1].elapsed_time(self._events[-1])) / 1e3
        return self._queued_at - earlier._queued_at


def _queue(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Start one copy of tensors of one CUDA device and dtype; return them as they will be on the host."""
    packed = torch.cat([tensor.reshape(-1) for tensor in tensors.values()])
    host = torch.empty(packed.shape, dtype=packed.dtype, device="cpu", pin_memory=True).copy_(
        packed, non_blocking=True
    )
    parts = host.split([tensor.numel() for tensor in tensors.values()])
    return {
        name: part.view(tensor.shape) for (name, tensor), part in zip(tensors.items(), parts, strict=True)
    }
