"""What all operators share: their two libraries, loaded on first use, and what refuses arguments.

An operator is a folder of this package: ``op.h`` has the schemas and the host half of both sides, ``cpu.h``
and ``launch.cuh`` have the rest; ``op.cpp`` and ``op.cu`` beside this file compile the sides, and ``.cu``
files of the folder what takes long, at the same time. They are two libraries, so that the CPU side works
where there is no nvcc, and CUDA is compiled for only when a CUDA tensor comes.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from kernels.loader import Extension

_HERE = Path(__file__).parent
# Whose headers an operator includes beside its own.
_INCLUDED = {"cma_update": ("cem_update", "normal"), "discrete": ("cem_update",)}
_lock = threading.RLock()
_libraries: dict[str, Library] = {}


def operators() -> tuple[str, ...]:
    """Return the names of all operators: the folders of this package that hold an ``op.h``."""
    return tuple(sorted(source.parent.name for source in _HERE.glob("*/op.h")))


def extension(name: str, device_type: str) -> Extension:
    """Return what is compiled of one of the operators for ``"cpu"``, schema included, or for ``"cuda"``."""
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


def register_fake(name: str, fake: Callable[..., Any]) -> None:
    """Register what says the shapes of an operator's results; the operator alone refuses shapes and types."""
    torch.library.register_fake(f"cem_tetris::{name}", fake)


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

    def __init__(
        self, name: str, register: Callable[[], None] = lambda: None, **fakes: Callable[..., Any]
    ) -> None:
        """Declare a folder of this package.

        Args:
            name: The folder.
            register: Adds fake kernels and gradients to its schemas.
            **fakes: The fake kernels of operators without a derivative, for ``call``.
        """
        self.name = name
        self.ready: set[bool] = set()
        self.register = register
        self.fakes = fakes
        self.direct: dict[str, Callable[..., Any]] = {}  # those operators, once they are loaded
        _libraries[name] = self

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


_IMPLEMENTATIONS = torch.library.Library("cem_tetris", "FRAGMENT")


def mapped(operator: Any, info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> Any:
    """What vmap calls: one call after the other. A generation that all share stays one number."""
    pairs = [(x, dim if isinstance(dim, int) else None) for x, dim in zip(arguments, in_dims, strict=True)]
    calls = ([x if dim is None else x.select(dim, i) for x, dim in pairs] for i in range(info.batch_size))
    names = (each.name for each in operator._schema.arguments)
    batched = {name for name, (_, dim) in zip(names, pairs, strict=False) if dim is not None}

    def stacked(*each: Tensor) -> tuple[Tensor, int | None]:
        shared = each[0].dim() == 0 and "generation" not in batched
        return (each[0], None) if shared else (torch.stack(each), 0)

    results = [operator(*call) for call in calls]
    if isinstance(results[0], Tensor):
        return stacked(*results)
    return tuple(zip(*map(stacked, *results), strict=True))


def _load(name: str, cuda: bool) -> None:
    library = _libraries[name]
    with _lock:
        if False not in library.ready:
            extension(name, "cpu").load()
            library.register()
            for each, fake in library.fakes.items():
                operator = getattr(torch.ops.cem_tetris, each).default
                register_fake(each, fake)
                torch.library.register_vmap(operator, partial(mapped, operator))
                _IMPLEMENTATIONS.impl(each, torch.library.fallthrough_kernel, "Autograd")
                library.direct[each] = operator._op
            library.ready.add(False)
        if cuda and True not in library.ready:
            extension(name, "cuda").load()
            library.ready.add(True)


# Dynamo then runs it, where it would trace into it. torch.compiler.assume_constant_result does no more, but
# imports Dynamo: seconds, also for those who compile nothing.
_load._dynamo_marked_constant = True  # type: ignore[attr-defined]
