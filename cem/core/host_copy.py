"""Asynchronous copies of tensors to the host."""

from __future__ import annotations

import time
from collections.abc import Mapping

import torch
from torch import Tensor


class HostCopy:
    """An asynchronous copy of tensors of a CUDA device to the host, ordered with the work of its stream.

    Tensors are packed: one asynchronous copy a dtype into page-locked memory. An event on the current stream
    marks the end; waiting for it does not wait for later work. Tensors of the CPU are not copied.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        """Queue the copies of tensors of any shape and dtype, by name; those of a GPU are on one of them."""
        self._values: dict[str, Tensor] = {}
        self._event: torch.cuda.Event | None = None
        packs: dict[torch.dtype, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if tensor.is_cpu:
                self._values[name] = tensor
            elif tensor.is_cuda:
                packs.setdefault(tensor.dtype, {})[name] = tensor.detach()
            else:
                self._values[name] = tensor.detach().cpu()
        for pack in packs.values():
            packed = torch.cat([tensor.reshape(-1) for tensor in pack.values()])
            host = torch.empty(packed.shape, dtype=packed.dtype, device="cpu", pin_memory=True)
            parts = host.copy_(packed, non_blocking=True).split([x.numel() for x in pack.values()])
            shapes = zip(pack.items(), parts, strict=True)
            self._values |= {name: part.view(tensor.shape) for (name, tensor), part in shapes}
            # With timing, for seconds_since; blocking, so that waiting for it does not spin.
            self._event = torch.cuda.Event(enable_timing=True, blocking=True)
            self._event.record(torch.cuda.current_stream(next(iter(pack.values())).device))
        self._queued_at = time.monotonic()

    @property
    def ready(self) -> bool:
        """Whether all values are on the host; does not wait."""
        return self._event is None or self._event.query()

    def values(self) -> dict[str, Tensor]:
        """Wait for these copies alone, and return them: tensors on the CPU, not to be changed."""
        if self._event is not None:
            self._event.synchronize()
        return self._values

    def seconds_since(self, earlier: HostCopy) -> float:
        """Return the seconds from the completion of an earlier copy to that of this one; both must be ready.

        On a CUDA device, the same for both, they are measured by its clock.
        """
        if self._event is not None and earlier._event is not None:
            return float(earlier._event.elapsed_time(self._event)) / 1e3
        return self._queued_at - earlier._queued_at
