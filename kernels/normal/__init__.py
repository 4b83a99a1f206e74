"""Normal samples whose noise is made inside the kernel."""

from kernels.normal.op import sample_normal, sample_normal_reference

__all__ = ["sample_normal", "sample_normal_reference"]
