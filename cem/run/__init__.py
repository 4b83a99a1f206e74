"""A run: the training loop, its records, checkpoints, stops and ranks. Begin with `trainer.py`."""
