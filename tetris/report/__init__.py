"""The page of a training run, and the comparison of several: what reads the folder of a run."""

ACROSS = {
    "generation": "generation",
    "decisions": "decisions",
    "seconds": "wall time of training [s]",
}
"""What a learning curve can be drawn across, and what its axis is called."""

PICTURE_SUFFIXES = (".png", ".svg", ".pdf")
"""What a picture can be, by the end of its name."""
