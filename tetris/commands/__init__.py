"""The command line: train, evaluate, estimate, watch, report, solve.

Begin with `train.py`; `command_line.py` is what all commands share.
"""
