"""The LLTM cell: function, module and plain-PyTorch reference. Begin with `op.py`."""

from kernels.ops.lltm.op import LLTM, lltm, lltm_reference

__all__ = ["LLTM", "lltm", "lltm_reference"]
