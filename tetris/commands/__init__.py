"""The command line: train, evaluate, estimate, watch, report, solve."""
