"""``a + b`` for every floating and integer type."""

from kernels.ops.vector_add.op import vector_add, vector_add_reference

__all__ = ["vector_add", "vector_add_reference"]
