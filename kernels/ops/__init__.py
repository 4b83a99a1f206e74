"""The operators: a folder each, with schema and kernels in C++ and CUDA, and what they share beside them.

Begin with `elementwise/op.py`, and with `library.py`, which loads an operator on first use.
"""
