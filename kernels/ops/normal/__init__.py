"""Normal samples whose noise is made inside the kernel. Begin with `op.py`."""

from kernels.ops.normal.op import sample_normal, sample_normal_reference, sample_normal_rows

__all__ = ["sample_normal", "sample_normal_reference", "sample_normal_rows"]
