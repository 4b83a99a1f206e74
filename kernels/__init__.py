"""PyTorch operators in C++ and CUDA, and the loader that builds them on first use."""

from kernels.build import BuildError, CompilerMissingError, Extension, compile_check

__all__ = ["BuildError", "CompilerMissingError", "Extension", "compile_check"]
