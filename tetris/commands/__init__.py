"""The command line: train, evaluate, estimate, watch, report, solve. Begin with `train.py`."""
