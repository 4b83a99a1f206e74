"""Makes tables and pictures of README and docs from the result files of benchmarks/results.

Begin with `render.py`; the pages call the functions of `*_blocks.py`.
"""
