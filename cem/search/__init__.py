"""``minimize`` and ``maximize``: a search with restarts in one call.

Begin with `loop.py`, which runs the searches. `options.py` defines the options of a call, and
`plan.py` chooses what they leave open. `single.py` is one search, `restarts.py` chooses the
next one, and `result.py` builds the result.
"""

from cem.search.minimize import maximize, minimize
from cem.search.restarts import Attempt, Bipop, Ipop, RestartPolicy
from cem.search.result import Result

__all__ = ["Attempt", "Bipop", "Ipop", "RestartPolicy", "Result", "maximize", "minimize"]
