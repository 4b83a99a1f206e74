"""The report of a training run and the comparison of several, from their folders.

Begin with `page.py`.
"""

from tetris.report.learning_curve import ACROSS, PICTURE_SUFFIXES, plot_learning_curve
from tetris.report.page import write_report

__all__ = ["ACROSS", "PICTURE_SUFFIXES", "plot_learning_curve", "write_report"]
