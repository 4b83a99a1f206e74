"""One generation of the method: its state, configuration, draw and update. Begin with `generation.py`."""
