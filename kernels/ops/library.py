"""What all operators share: their two libraries, loaded on first use, and the check of a tensor argument.

An operator is a folder of this package. Its ``op.cpp`` is the schema and the CPU side, its ``op.cu`` the CUDA
side, ``op.h`` the host half of both. They are two libraries, so that the CPU side works where there is no
nvcc, and CUDA is compiled for only when a CUDA tensor comes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from kernels.loader import Extension

_HERE = Path(__file__).parent
_INCLUDED = {"cma_update": ("cem_update", "normal")}  # whose headers an operator includes beside its own
_lock = threading.RLock()
_libraries: dict[str, Library] = {}


def operators() -> tuple[str, ...]:
    """Return the names of all operators: the folders of this package that hold an ``op.cpp``."""
    return tuple(sorted(source.parent.name for source in _HERE.glob("*/op.cpp")))


def extension(name: str, device_type: str) -> Extension:
    """Return what is compiled of one of the operators for ``"cpu"``, schema included, or for ``"cuda"``."""
    folder, headers = _HERE / name, (_HERE, *(_HERE / other for other in _INCLUDED.get(name, ())))
    if device_type == "cuda":
        return Extension(f"{name}_cuda", (folder / "op.cu",), headers, reason="operator, CUDA", cuda=True)
    return Extension(name, (folder / "op.cpp",), headers, native=True, reason="operator, CPU")


def check_tensor(
    name: str,
    value: Any,
    dtypes: Collection[torch.dtype],
    device: torch.device | None = None,
    shapes: Collection[tuple[int, ...]] = (),
) -> None:
    """Check an argument: nothing is broadcast, promoted or moved.

    Args:
        name: the argument's.
        value: what has to be a dense tensor.
        dtypes: those that it may have.
        device: where it has to be; None: on a CPU, a CUDA or the meta device.
        shapes: those that it may have; any if there are none.

    Raises:
        TypeError: it is no tensor, not dense, or of another dtype.
        ValueError: it has another shape, or is elsewhere.
    """
    if not isinstance(value, Tensor):
        raise TypeError(f"expected {name} to be a tensor, got {type(value).__name__}")
    if shapes and value.shape not in shapes:
        wanted = " or ".join(str(tuple(shape)) for shape in shapes)
        raise ValueError(f"expected {name} of shape {wanted}, got {tuple(value.shape)}")
    if value.layout is not torch.strided:
        raise TypeError(f"expected {name} dense, got {value.layout}")
    if value.dtype not in dtypes:
        wanted = ", ".join(map(str, dtypes))
        raise TypeError(f"expected {name} of {wanted}, got {value.dtype}".replace("torch.", ""))
    if value.device != device if device is not None else value.device.type not in ("cpu", "cuda", "meta"):
        raise ValueError(f"expected {name} on {device or 'CPU or CUDA'}, got {value.device}")


def is_transformed() -> bool:
    """Return whether forward-mode differentiation or a transform of ``torch.func`` is at work.

    The operators have no rules for them; their references, plain PyTorch, have.
    """
    return forward_ad._current_level >= 0 or _are_transforms_active()


def is_traced_or_transformed() -> bool:
    """Return whether a call has to go the long way: Dynamo reads it, or ``is_transformed`` holds."""
    # Of `is_transformed` the words, not a call: this is asked before each draw.
    return _is_traced() or forward_ad._current_level >= 0 or _are_transforms_active()


_is_compiling = torch.compiler.is_compiling
_is_traced = torch.compiler.is_dynamo_compiling
_are_transforms_active = torch._C._are_functorch_transforms_active


class Library:
    """The libraries of one operator family.

    Examples:
        >>> LIBRARY = Library("sigmoid", register=_register)  # beside the public function
        >>> def sigmoid(x):
        ...     LIBRARY.ensure(x)
        ...     return torch.ops.cem_tetris.sigmoid(x)

    Attributes:
        ready: of ``tensor.is_cuda``, those for which the operators are loaded.
    """

    def __init__(self, name: str, register: Callable[[], None]) -> None:
        """Declare a family; build and load nothing.

        Args:
            name: the folder in this package that holds ``op.cpp`` and ``op.cu``.
            register: called once, when the schemas are known, for fake kernels and autograd formulas.
        """
        self.name = name
        self.ready: set[bool] = set()
        self._register = register
        _libraries[name] = self

    def ensure(self, tensor: Tensor) -> None:
        """See to it that the operators work on the device of a tensor; build them where needed.

        Under torch.compile this happens while the caller is traced.

        Raises:
            CompilerMissingError: it has to be built, and there is no compiler.
            BuildError: it could not be built or loaded.
        """
        # Asked in this order, for a traced function must not depend on what was loaded before it.
        if _is_compiling() or tensor.is_cuda not in self.ready:
            _load(self.name, tensor.is_cuda)

    def _load(self, cuda: bool) -> None:
        with _lock:
            if False not in self.ready:
                extension(self.name, "cpu").load()
                self._register()
                self.ready.add(False)
            if cuda and True not in self.ready:
                extension(self.name, "cuda").load()
                self.ready.add(True)


def _load(name: str, cuda: bool) -> None:
    _libraries[name]._load(cuda)


# Dynamo then runs it, where it would trace into it. torch.compiler.assume_constant_result does no more, but
# imports Dynamo: seconds, also for those who compile nothing.
_load._dynamo_marked_constant = True  # type: ignore[attr-defined]
