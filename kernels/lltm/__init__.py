"""The LLTM cell: function, module and plain-PyTorch reference."""

from kernels.lltm.module import LLTM
from kernels.lltm.op import lltm, lltm_reference

__all__ = ["LLTM", "lltm", "lltm_reference"]
