"""The operators, a folder each, and what they share. Begin with `elementwise/op.py`."""
