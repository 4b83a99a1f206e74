"""Planning with a model.

Begin with `planner.py`, the public class, and then read `search.py`, one step. The others:

- `options.py`: the options and the published methods;
- `spaces.py`, `spline.py`: the vectors that are searched;
- `noise.py`: the noise from which they are drawn;
- `costs.py`, `states.py`: how a cost is called;
- `update.py`: how the distribution is updated;
- `memory.py`: what a step passes to the next one;
- `replay.py`: steps as CUDA graphs;
- `stable_worldmodel.py`, `torchrl.py`: adapters for these libraries.
"""
