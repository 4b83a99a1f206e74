"""Modules of PyTorch as candidates, and as policies of environments. Begin with `parameter_vector.py`."""
