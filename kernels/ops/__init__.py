"""The operators, a folder each, and beside them what they share. Begin with `elementwise/op.py`."""
