"""A run: the training loop, what it records and saves, how it stops, and its ranks. Begin with `trainer.py`."""
