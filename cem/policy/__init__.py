"""Modules of PyTorch as candidates: their parameters as vectors, and policies of environments."""
