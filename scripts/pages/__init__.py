"""Turns the result files of benchmarks/results into tables and pictures of README and docs."""
