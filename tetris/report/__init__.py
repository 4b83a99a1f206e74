"""The page of a training run, and the comparison of several: what reads the folder of a run."""
