"""Planning with a model: `planner.py` is the controller, `plan_search.py` the search of one step."""
