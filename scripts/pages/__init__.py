"""Turns the result files of benchmarks/results into tables and pictures of README and docs.

Begin with `render.py`; the functions of `*_blocks.py` are called in the pages.
"""
