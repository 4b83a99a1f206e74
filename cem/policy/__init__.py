"""Modules of PyTorch as candidates and as policies. Start with `parameter_vector.py`."""
