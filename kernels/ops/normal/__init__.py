"""Normal samples whose noise is made inside the kernel. Begin with `op.py`."""

from kernels.ops.normal.op import sample_normal, sample_normal_reference, sample_normal_rows
from kernels.ops.normal.reference import sample_normal_rows_reference

__all__ = ["sample_normal", "sample_normal_reference", "sample_normal_rows", "sample_normal_rows_reference"]
