"""What all operators share: two libraries, loaded on first use, and the errors they raise.

An operator is a folder of this package and some lines of `schemas.py`: ``op.h`` has the code
that CPU and CUDA share, ``cpu.h`` and ``launch.cuh`` have the rest; ``op.cpp`` and ``op.cu``
beside this file compile them, and ``.cu`` files of the folder compile at the same time what
takes long. They are two libraries, so that the CPU works where there is no nvcc, and nothing is
compiled for CUDA before the first CUDA tensor.
"""

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
# The folders whose headers an operator includes beside its own.
_INCLUDED = {"cma_update": ("cem_update", "normal"), "discrete": ("cem_update",)}
_lock = threading.RLock()


def extension(name: str, device_type: str) -> Extension:
    """Return the library of an operator family for ``"cpu"`` or for ``"cuda"``."""
    folders = [_HERE, _HERE / name]
    folders += [_HERE / other for other in _INCLUDED.get(name, ())]
    if device_type == "cuda":
        sources = [_HERE / "op.cu", *sorted((_HERE / name).glob("*.cu"))]
        return Extension(f"{name}_cuda", sources, folders, reason="operator, CUDA", cuda=True)
    return Extension(name, _HERE / "op.cpp", folders, native=True, reason="operator, CPU")


def public_error(error: Exception) -> Exception:
    """Return a failed check in C++ as a TypeError or ValueError, any other error as it is."""
    if type(error) is AttributeError:
        return TypeError(f"expected a tensor: {error}")
    message = re.search("[Ee]xpected .*", str(error)) if type(error) is RuntimeError else None
    if message is None:
        return error
    if " of type " in message[0]:
        return TypeError(message[0])
    return ValueError(message[0])


def is_transformed() -> bool:
    """Return whether a call is under forward-mode AD or ``torch.func``.

    Only the references support these.
    """
    return forward_ad._current_level >= 0 or _are_transforms_active()


def needs_dispatch() -> bool:
    """Return whether a call must go through PyTorch's dispatcher.

    It must while Dynamo traces it, and where `is_transformed` is true.
    """
    # `is_transformed` is written out, not called, because this is asked before every draw.
    return _is_traced() or forward_ad._current_level >= 0 or _are_transforms_active()


_is_compiling = torch.compiler.is_compiling
_is_traced = torch.compiler.is_dynamo_compiling
_are_transforms_active = torch._C._are_functorch_transforms_active


class Gradient(NamedTuple):
    """The derivative of an operator, as ``torch.library.register_autograd`` takes it."""

    backward: Callable[..., Any]
    save: Callable[..., None] = lambda ctx, inputs, output: None  # what the backward pass needs


class Library:
    """The libraries of one operator family.

    Examples:
        >>> LIBRARY = Library("sigmoid", {"sigmoid": torch.empty_like})
        >>> def sigmoid(x):
        ...     LIBRARY.ensure(x)
        ...     return torch.ops.cem_tetris.sigmoid(x)

    Attributes:
        ready: the values of ``tensor.is_cuda`` for which the operators are loaded.
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
            fakes: For each operator, a function that returns unset results of the right shape
                and type.
            gradients: The derivatives of the differentiable operators.
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
        # In this order, because a traced function must not depend on what was loaded before it.
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
            raise public_error(error) from None

    def fake(self, name: str, *arguments: Any) -> Any:
        """Return the unset results of an operator, after checking its arguments.

        torch calls this while it traces, with fake tensors. The operator in C++ checks its
        arguments itself: it is called with tensors of the same shapes without data. A symbolic
        size is replaced by the number that torch.compile traces with; if that is not known,
        nothing is checked.
        """
        _load(self.name, False)
        operator = getattr(torch.ops.cem_tetris, name).default
        with _disable_current_modes():
            try:
                # Call the kernel of the CPU, although these tensors are on no device.
                operator.redispatch(_CPU, *map(_remove_data, arguments))
            except _UnknownSizeError:
                pass
            except RuntimeError as error:
                # Not raised as a TypeError, which torch.compile would log.
                raise RuntimeError(str(public_error(error))) from None
        # Tensors without data are all on one device, so the devices are checked here.
        device = None
        for argument, schema in zip(arguments, operator._schema.arguments, strict=False):
            if not isinstance(argument, Tensor):
                continue
            device = device or argument.device
            if argument.device != device:
                raise RuntimeError(
                    f"expected all tensors on one device, got {schema.name} on another"
                )
        return self.fakes[name](*arguments)


LIBRARIES: dict[str, Library] = {}
"""The libraries of all families, by folder."""


class _UnknownSizeError(Exception):
    pass


def _remove_data(argument: Any) -> Any:
    """Return a tensor without its data, and any other argument as `_make_concrete` does."""
    if not isinstance(argument, Tensor):
        return _make_concrete(argument)
    sizes = [_make_concrete(size) for size in argument.shape]
    return torch.empty(sizes, dtype=argument.dtype, device="meta")


def _make_concrete(number: Any) -> Any:
    """Return the number that a symbol of torch.compile stands for while it traces.

    No guard is added. What is no symbol is returned as it is.
    """
    node = getattr(number, "node", None)
    if node is None:
        return number
    if not node.has_hint():
        raise _UnknownSizeError
    return node.hint


_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


def _load(name: str, cuda: bool) -> None:
    """Build and load the CPU's library of a family, and with ``cuda`` that of CUDA too."""
    library = LIBRARIES[name]
    with _lock:
        if False not in library.ready:
            extension(name, "cpu").load()
            for operator in library.fakes:
                library.direct[operator] = getattr(torch.ops.cem_tetris, operator).default._op
            library.ready.add(False)
        if cuda and True not in library.ready:
            extension(name, "cuda").load()
            library.ready.add(True)


# With this mark Dynamo runs it and does not trace into it.
# torch.compiler.assume_constant_result does the same, but imports Dynamo, which takes seconds,
# also for those who compile nothing.
_load._dynamo_marked_constant = True  # type: ignore[attr-defined]
