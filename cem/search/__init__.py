"""``minimize`` and ``maximize``: a search with restarts in one call.

Begin with `loop.py`. Before it `options.py` has what a call takes, and `plan.py` what is chosen
from that; in it are `restarts.py` and `single.py`, one search; after it comes `result.py`.
"""

from cem.search.minimize import maximize, minimize
from cem.search.restarts import Attempt, Bipop, Ipop, RestartPolicy
from cem.search.result import Result

__all__ = ["Attempt", "Bipop", "Ipop", "RestartPolicy", "Result", "maximize", "minimize"]
