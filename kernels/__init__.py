"""PyTorch operators in C++ and CUDA (`ops`), the loader that builds them on first use (`loader`), `support`.

The names below are imported when they are first used.
"""

from typing import TYPE_CHECKING, Any

from kernels.version import __version__ as __version__

if TYPE_CHECKING:
    from kernels.loader import BuildError, CompilerMissingError, Extension, compile_check

__all__ = ["BuildError", "CompilerMissingError", "Extension", "compile_check"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kernels import loader

    globals()[name] = getattr(loader, name)
    return globals()[name]
