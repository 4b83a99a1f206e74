"""The report of a training run and the comparison of several, from their folders."""

from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    # Imported when it is first used: the help of a command needs the constants alone, and no torch.
    if name == "plot_learning_curve":
        from tetris.report.learning_curve import plot_learning_curve

        return plot_learning_curve
    if name == "write_report":
        from tetris.report.page import write_report

        return write_report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
