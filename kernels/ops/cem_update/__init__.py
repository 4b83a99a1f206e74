"""The update of a normal distribution by a generation. Begin with `reference.py`."""

from kernels.ops.cem_update.op import cem_update
from kernels.ops.cem_update.reference import cem_update_reference

__all__ = ["cem_update", "cem_update_reference"]
