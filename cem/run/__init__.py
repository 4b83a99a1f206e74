"""A run: the training loop, records, checkpoints, stops and ranks. Begin with `trainer.py`."""
