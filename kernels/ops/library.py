"""What all operators share: their two libraries, loaded on first use, and what refuses arguments.

An operator is a folder of this package and some lines of `schemas.py`: ``op.h`` has the host half of both
sides, ``cpu.h`` and ``launch.cuh`` have the rest; ``op.cpp`` and ``op.cu`` beside this file compile the
sides, and ``.cu`` files of the folder what takes long, at the same time. They are two libraries, so that the
CPU side works where there is no nvcc, and CUDA is compiled for only when a CUDA tensor comes.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes

from kernels.loader import Extension

_HERE = Path(__file__).parent
# Whose headers an operator includes beside its own.
_INCLUDED = {"cma_update": ("cem_update", "normal"), "discrete": ("cem_update",)}
_lock = threading.RLock()
LIBRARIES: dict[str, Library] = {}


def extension(name: str, device_type: str) -> Extension:
    """Return what is compiled of one of the operators for ``"cpu"`` or for ``"cuda"``."""
    headers = (_HERE, *(_HERE / other for other in (name, *_INCLUDED.get(name, ()))))
    if device_type == "cuda":
        sources = (_HERE / "op.cu", *sorted((_HERE / name).glob("*.cu")))
        return Extension(f"{name}_cuda", sources, headers, reason="operator, CUDA", cuda=True)
    return Extension(name, (_HERE / "op.cpp",), headers, native=True, reason="operator, CPU")


def refused(error: Exception) -> Exception:
    """Return the TypeError or ValueError that an operator's refusal in C++ is, or any other error itself."""
    found = re.search("[Ee]xpected .*", str(error)) if type(error) is RuntimeError else None
    if found is None:
        return TypeError(f"expected a tensor: {error}") if type(error) is AttributeError else error
    return (TypeError if " of type " in found[0] else ValueError)(found[0])


def is_transformed() -> bool:
    """Return whether forward-mode or ``torch.func`` is at work: only the references have rules for them."""
    return forward_ad._current_level >= 0 or _are_transforms_active()


def goes_long_way() -> bool:
    """Return whether a call has to go the long way: Dynamo reads it, or ``is_transformed`` holds."""
    # Of `is_transformed` the words, not a call: this is asked before each draw.
    return _is_traced() or forward_ad._current_level >= 0 or _are_transforms_active()


_is_compiling = torch.compiler.is_compiling
_is_traced = torch.compiler.is_dynamo_compiling
_are_transforms_active = torch._C._are_functorch_transforms_active


class Gradient(NamedTuple):
    """The derivative of an operator, as ``torch.library.register_autograd`` takes it."""

    backward: Callable[..., Any]
    save: Callable[..., None] = lambda ctx, inputs, output: None  # for the backward pass


class Library:
    """The libraries of one operator family.

    Examples:
        >>> LIBRARY = Library("sigmoid", {"sigmoid": torch.empty_like})  # beside the public function
        >>> def sigmoid(x):
        ...     LIBRARY.ensure(x)
        ...     return torch.ops.cem_tetris.sigmoid(x)

    Attributes:
        ready: of ``tensor.is_cuda``, those for which the operators are loaded.
    """

    def __init__(
        self,
        name: str,
        fakes: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
        gradients: Mapping[str, Gradient] = MappingProxyType({}),
    ) -> None:
        """Declare a folder of this package.

        Args:
            name: The folder.
            fakes: Of each operator, what returns unset results of the right shape and type.
            gradients: Of each differentiable operator its derivative.
        """
        self.name = name
        self.ready: set[bool] = set()
        self.fakes = fakes
        self.gradients = gradients
        self.direct: dict[str, Callable[..., Any]] = {}  # the operators, once they are loaded
        LIBRARIES[name] = self

    def ensure(self, tensor: Tensor) -> None:
        """Build and load the operators for the device of a tensor, or raise BuildError.

        Under torch.compile this happens while the caller is traced.
        """
        # Asked in this order, for a traced function must not depend on what was loaded before it.
        if _is_compiling() or tensor.is_cuda not in self.ready:
            _load(self.name, tensor.is_cuda)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call an operator without a derivative: no gradient reaches its results."""
        try:
            if _is_traced() or arguments[0].is_cuda not in self.ready:
                self.ensure(arguments[0])
                return getattr(torch.ops.cem_tetris, name).default(*arguments)
            return self.direct[name](*arguments)
        except (AttributeError, RuntimeError) as error:
            raise refused(error) from None

    def fake(self, name: str, *arguments: Any) -> Any:
        """Return unset results of an operator, whose arguments are checked as the operator checks them.

        The operator in C++ is called with tensors that have no data. A symbolic size counts as the number for
        which torch.compile traces; where that is not known nothing is checked.
        """
        _load(self.name, False)
        operator = getattr(torch.ops.cem_tetris, name).default
        with _disable_current_modes():
            try:
                operator.redispatch(_CPU, *map(_without_data, arguments))
            except _UnknownSizeError:
                pass
            except RuntimeError as error:  # a TypeError would be logged by torch.compile
                raise RuntimeError(str(refused(error))) from None
        pairs = zip(arguments, operator._schema.arguments, strict=False)
        (first, _), *others = [pair for pair in pairs if isinstance(pair[0], Tensor)]
        for tensor, schema in others:
            if tensor.device != first.device:
                raise RuntimeError(f"expected all tensors on one device, got {schema.name} on another")
        return self.fakes[name](*arguments)


class _UnknownSizeError(Exception):
    pass


def _without_data(argument: Any) -> Any:
    """Return a tensor without data in place of a tensor, and numbers as they are known."""
    if not isinstance(argument, Tensor):
        return _known(argument)
    sizes = [_known(size) for size in argument.shape]
    return torch.empty(sizes, dtype=argument.dtype, device="meta")


def _known(number: Any) -> Any:
    """Return the number that a symbol of torch.compile stands for while it traces; no guard is added."""
    node = getattr(number, "node", None)
    if node is None:
        return number
    if not node.has_hint():
        raise _UnknownSizeError
    return node.hint


_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


def _load(name: str, cuda: bool) -> None:
    library = LIBRARIES[name]
    with _lock:
        if False not in library.ready:
            extension(name, "cpu").load()
            for each in library.fakes:
                library.direct[each] = getattr(torch.ops.cem_tetris, each).default._op
            library.ready.add(False)
        if cuda and True not in library.ready:
            extension(name, "cuda").load()
            library.ready.add(True)


# Dynamo then runs it, where it would trace into it. torch.compiler.assume_constant_result does no more, but
# imports Dynamo: seconds, also for those who compile nothing.
_load._dynamo_marked_constant = True  # type: ignore[attr-defined]
