"""Compiles an extension in C++ or CUDA on first use and loads it. Begin with `extension.py`."""

from kernels.loader.compile import compile_check
from kernels.loader.extension import Extension
from kernels.loader.toolchain import BuildError, CompilerMissingError

__all__ = ["BuildError", "CompilerMissingError", "Extension", "compile_check"]
