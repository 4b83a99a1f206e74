"""Planning with a model. Begin with `planner.py`."""
