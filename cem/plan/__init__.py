"""Planning with a model. Begin with `planner.py`, the public class, then `search.py`, one step.

`options.py` has the options and the methods, `spaces.py` and `spline.py` the vectors that are
searched, `noise.py` what they are drawn with, `costs.py` and `states.py` how a cost is called,
`update.py` how the distribution moves. `memory.py` is what a step leaves to the next one, and
`replay.py` takes steps by CUDA graphs.
"""
