"""What all operators share: two libraries that are loaded on first use, and their errors.

A family of operators is a folder of this package and some lines of `schemas.py`. In the folder,
``op.h`` has the code that CPU and CUDA share; ``cpu.h`` and ``launch.cuh`` have the rest.
``op.cpp`` and ``op.cu`` beside this file include them. Further ``.cu`` files of the folder
contain kernels that take long to compile, so that they are compiled in parallel. The CPU and
CUDA have separate libraries: the CPU works without nvcc, and nothing is compiled for CUDA
before the first CUDA tensor.
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
# Folders, and the other folders whose headers they include.
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
    """Return a failed check in C++ as a TypeError or ValueError, and other errors unchanged."""
    if type(error) is AttributeError:
        return TypeError(f"expected a tensor: {error}")
    message = re.search("[Ee]xpected .*", str(error)) if type(error) is RuntimeError else None
    if message is None:
        return error
    if " of type " in message[0]:
        return TypeError(message[0])
    return ValueError(message[0])


def is_transformed() -> bool:
    """Return whether a call runs under forward-mode AD or ``torch.func``.

    Only the references support these.
    """
    return forward_ad._current_level >= 0 or _are_transforms_active()


def is_traced() -> bool:
    """Return whether a call may be recorded in a program that gets other arguments later.

    torch.export, torch.jit.trace and make_fx record such programs. The call must use an
    operator with a derivative, because the later arguments may require gradients.
    """
    # torch.compile compiles again if an argument begins to require gradients.
    if _is_dynamo_tracing():
        return _is_exporting()
    # torch.export, unless it is strict, and make_fx record in a dispatch mode.
    return _is_jit_tracing() or _count_dispatch_modes() > 0


def needs_dispatch() -> bool:
    """Return whether a call is traced or transformed.

    Then it may neither use a shortcut nor read the values of a tensor.
    """
    # The code of `is_traced` and `is_transformed` is repeated, because this runs before every
    # draw.
    return (
        _is_dynamo_tracing()
        or forward_ad._current_level >= 0
        or _are_transforms_active()
        or _is_jit_tracing()
        or _count_dispatch_modes() > 0
    )


_is_dynamo_tracing = torch.compiler.is_dynamo_compiling
_is_exporting = torch.compiler.is_exporting
_is_jit_tracing = torch._C._is_tracing
_count_dispatch_modes = torch._C._len_torch_dispatch_stack
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
        """Declare the operators of a folder of this package.

        Args:
            name: the folder.
            fakes: for every operator, a function that returns uninitialised results of the
                right shape and type.
            gradients: the derivatives of the differentiable operators.
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
        # This test comes first: a trace must not depend on what is loaded already.
        if _is_dynamo_tracing() or tensor.is_cuda not in self.ready:
            _load(self.name, tensor.is_cuda)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call an operator. The first call on a device builds and loads the library for it."""
        try:
            if _is_dynamo_tracing() or arguments[0].is_cuda not in self.ready:
                self.ensure(arguments[0])
                return getattr(torch.ops.cem_tetris, name).default(*arguments)
            return self.direct[name](*arguments)
        except (AttributeError, RuntimeError) as error:
            raise public_error(error) from None

    def fake(self, operator_name: str, *arguments: Any) -> Any:
        """Check an operator's arguments, and return uninitialised results of the right shapes.

        This is the fake kernel of the operator: torch calls it during tracing, with tensors
        that have no data.
        """
        # The CPU library of this family (`self.name`) contains the checks.
        _load(self.name, cuda=False)
        operator = getattr(torch.ops.cem_tetris, operator_name).default
        _check_in_cpp(operator, arguments)
        # The check in C++ cannot compare the devices, so they are compared here. The schema may
        # be longer than the arguments, because torch leaves out those with default values.
        device = None
        for argument, parameter in zip(arguments, operator._schema.arguments, strict=False):
            if not isinstance(argument, Tensor):
                continue
            device = device or argument.device
            if argument.device != device:
                raise RuntimeError(
                    f"expected all tensors on one device, got {parameter.name} on another"
                )
        return self.fakes[operator_name](*arguments)


LIBRARIES: dict[str, Library] = {}
"""The libraries of all families, by folder."""


class _UnknownSizeError(Exception):
    pass


def _check_in_cpp(operator: Any, arguments: tuple[Any, ...]) -> None:
    """Let the operator's kernel for the CPU check its arguments, without computing anything.

    It is called with tensors of the same shapes on the device "meta", which have no data.
    Symbolic sizes are replaced by the numbers that torch.compile traces with. If torch.compile
    does not know such a number, nothing is checked.
    """
    with _disable_current_modes():
        try:
            operator.redispatch(_CPU, *map(_remove_data, arguments))
        except _UnknownSizeError:
            pass
        except RuntimeError as error:
            # Raise a RuntimeError in any case, because torch.compile would log a TypeError.
            raise RuntimeError(str(public_error(error))) from None


def _remove_data(argument: Any) -> Any:
    """Return a tensor without data, and any other argument as `_make_concrete` does."""
    if not isinstance(argument, Tensor):
        return _make_concrete(argument)
    sizes = [_make_concrete(size) for size in argument.shape]
    return torch.empty(sizes, dtype=argument.dtype, device="meta")


def _make_concrete(number: Any) -> Any:
    """Return the number with which torch.compile traces a symbolic number.

    This adds no guard. An argument that is not symbolic is returned unchanged.
    """
    node = getattr(number, "node", None)
    if node is None:
        return number
    if not node.has_hint():
        raise _UnknownSizeError
    return node.hint


_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


def _load(name: str, cuda: bool) -> None:
    """Build and load a family's library for the CPU and, if ``cuda``, the one for CUDA."""
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


# With this mark Dynamo calls the function and does not trace into it.
# torch.compiler.assume_constant_result sets the same mark, but imports Dynamo, which takes
# seconds even if nothing is compiled.
_load._dynamo_marked_constant = True  # type: ignore[attr-defined]
