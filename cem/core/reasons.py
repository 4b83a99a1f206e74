"""The reasons why a search, or a call of ``minimize``, ends.

A new reason is a member here. Its rule is in ``cem.core.termination``, or, if it does not
depend on the records of a search, where the search or the call is ended.
"""

from enum import Enum, auto


class Then(Enum):
    """What ``minimize`` does after a search that ended for a reason."""

    RESTART = auto()
    COMPARE = auto()  # The search came to rest: if restarts found the same, none follows.
    END = auto()
    CUT_SHORT = auto()  # End, without the answer that the call was made for.


class Reason(str, Enum):
    """A reason to end: a string, with a sentence about it and what ``minimize`` does then."""

    message: str
    then: Then

    def __new__(cls, value: str, message: str, then: Then) -> "Reason":
        """Make a member."""
        reason = str.__new__(cls, value)
        reason._value_ = value
        reason.message = message
        reason.then = then
        return reason

    __str__ = str.__str__
    __repr__ = str.__repr__

    @property
    def ends_all(self) -> bool:
        """Whether no restart follows."""
        return self.then in (Then.END, Then.CUT_SHORT)

    @property
    def cuts_short(self) -> bool:
        """Whether the call ended before it had its answer."""
        return self.then is Then.CUT_SHORT

    TARGET = "target", "the best value is as good as the target", Then.END
    XTOL = "xtol", "every standard deviation is below xtol", Then.END
    FTOL = "ftol", "the values of recent generations differ by less than ftol", Then.END
    STD = "std", "the standard deviations have become negligible", Then.COMPARE
    FITNESS_RANGE = (
        "fitness_range",
        "the differences of recent values have become negligible",
        Then.COMPARE,
    )
    STAGNATION = (
        "stagnation",
        "the best value has not improved for many generations",
        Then.RESTART,
    )
    DIVERGED = (
        "diverged",
        "the standard deviations have grown without an end: "
        "the constraints do not hold the search",
        Then.RESTART,
    )
    NOISE = "noise", "the objective is noisy", Then.RESTART
    FAILED = "failed", "every candidate of the last generations failed", Then.RESTART
    BUDGET = (
        "budget",
        "the budget of evaluations is spent, or that of the last restart",
        Then.RESTART,
    )  # The budget of one search.
    RESTARTS_AGREE = "restarts_agree", "restarts found the same", Then.END
    TIME_LIMIT = "time_limit", "the time limit has passed", Then.CUT_SHORT
    SIGNAL = "signal", "a signal, such as Ctrl-C, asked to stop", Then.CUT_SHORT
    REQUESTED = "requested", "a callback asked to stop", Then.CUT_SHORT
