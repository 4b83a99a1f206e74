"""The LLTM cell: function, module and plain-PyTorch reference. Begin with `op.py`."""

from kernels.ops.lltm.module import LLTM
from kernels.ops.lltm.op import lltm, lltm_reference

__all__ = ["LLTM", "lltm", "lltm_reference"]
