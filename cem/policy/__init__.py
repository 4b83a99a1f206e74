"""Modules of PyTorch as candidates and as policies. Begin with `parameter_vector.py`."""
