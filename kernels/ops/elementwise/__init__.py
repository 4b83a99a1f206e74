"""Sigmoid, sum and product: one source for CPU and CUDA, and one table. Begin with `op.py`."""
