"""PyTorch operators in C++ and CUDA, which are compiled on first use.

`ops` contains the operators, `loader` builds and loads them, and `support` contains what all
packages of this project share. The names below are imported when they are first used. Begin
with `ops/elementwise/op.py`, which has the smallest operators.
"""

import importlib
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from kernels.support.lazy import lazy_names
from kernels.version import __version__ as __version__

if TYPE_CHECKING:
    from kernels.loader import BuildError, CompilerMissingError, Extension, compile_check
    from kernels.ops.cem_update import cem_update, cem_update_reference
    from kernels.ops.cma_update import cma_update, cma_update_reference, draw_correlated
    from kernels.ops.discrete.op import sample_categorical, sample_permutation
    from kernels.ops.discrete.reference import (
        sample_categorical_reference,
        sample_permutation_reference,
    )
    from kernels.ops.discrete.tables import update_tables, update_tables_reference
    from kernels.ops.elementwise.op import (
        elementwise_mult,
        elementwise_mult_reference,
        sigmoid,
        sigmoid_reference,
        vector_add,
        vector_add_reference,
    )
    from kernels.ops.lltm import LLTM, lltm, lltm_reference
    from kernels.ops.normal import sample_normal, sample_normal_reference, sample_normal_rows

__all__ = [
    "LLTM",
    "BuildError",
    "CompilerMissingError",
    "Extension",
    "cem_update",
    "cem_update_reference",
    "cma_update",
    "cma_update_reference",
    "compile_check",
    "draw_correlated",
    "elementwise_mult",
    "elementwise_mult_reference",
    "lltm",
    "lltm_reference",
    "sample_categorical",
    "sample_categorical_reference",
    "sample_normal",
    "sample_normal_reference",
    "sample_normal_rows",
    "sample_permutation",
    "sample_permutation_reference",
    "sigmoid",
    "sigmoid_reference",
    "update_tables",
    "update_tables_reference",
    "vector_add",
    "vector_add_reference",
]

__getattr__ = lazy_names(__name__)


def _execute_and_register(execute: Any, module: object) -> None:
    """Execute torch's module, then register the schemas, which need torch."""
    execute(module)
    importlib.import_module("kernels.ops.schemas")


class _RegisterWithTorch:
    """An import finder that registers the operators' schemas as soon as torch is imported.

    This package does not import torch itself.
    """

    def find_spec(self, name: str, *arguments: Any) -> Any:
        """Return torch's import spec, changed so that importing torch registers our schemas.

        As any finder on ``sys.meta_path``, it returns None if it does not find a module: if the
        module is not torch, or torch is not installed.
        """
        if name != "torch":
            return None
        other_finders = [finder for finder in sys.meta_path if finder is not self]
        for finder in other_finders:
            spec: Any = finder.find_spec(name, *arguments)
            if spec is not None:
                execute = spec.loader.exec_module
                spec.loader.exec_module = partial(_execute_and_register, execute)
                return spec
        return None


if "torch" in sys.modules:
    importlib.import_module("kernels.ops.schemas")
else:
    sys.meta_path.insert(0, _RegisterWithTorch())
