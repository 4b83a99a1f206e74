"""One generation: state, configuration, draw and update. Begin with `generation.py`."""
