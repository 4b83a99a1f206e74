"""The report of a training run and the comparison of several, from their folders.

What needs torch is imported when it is first used. Begin with `page.py`.
"""

from typing import TYPE_CHECKING

from kernels.support.lazy import lazy_names

if TYPE_CHECKING:
    from tetris.report.learning_curve import plot_learning_curve
    from tetris.report.page import write_report

__all__ = ["ACROSS", "PICTURE_SUFFIXES", "plot_learning_curve", "write_report"]

ACROSS = {
    "generation": "generation",
    "decisions": "decisions",
    "seconds": "wall time of training [s]",
}
"""The quantities of a learning curve's x axis, with its label."""

PICTURE_SUFFIXES = (".png", ".svg", ".pdf")
"""The suffixes of the picture formats."""

__getattr__ = lazy_names(
    __name__,
    {
        "tetris.report.learning_curve": ("plot_learning_curve",),
        "tetris.report.page": ("write_report",),
    },
)
