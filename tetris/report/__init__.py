"""The report of a training run and the comparison of several, from their folders."""

ACROSS = {
    "generation": "generation",
    "decisions": "decisions",
    "seconds": "wall time of training [s]",
}
"""The quantities of a learning curve's x axis, with its label."""

PICTURE_SUFFIXES = (".png", ".svg", ".pdf")
"""The suffixes of the picture formats."""
