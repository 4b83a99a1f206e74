"""Planning with a model: the search of one step, and the controller. Begin with `planner.py`."""
