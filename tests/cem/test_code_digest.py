"""Which changes of an objective a checkpoint notices."""

import json
from functools import lru_cache, partial, wraps

import numpy as np
import pytest

from cem import CheckpointError, minimize
from cem.run.code_digest import digest_code


def define(text, **names):
    scope = {"np": np, **names}
    exec(text, scope)
    return scope["f"]


def plain(shift=3, comment=""):
    return define(f"def f(x):\n    {comment!r}\n    return float(((x - {shift}) ** 2).sum())")


def with_helper(shift):
    return define(
        f"def helper(x):\n    return x - {shift}\ndef f(x):\n    return helper(x) @ helper(x)"
    )


def closing(shift):
    calls, count = [], 0

    def f(x):
        nonlocal count
        count += 1
        calls.append(x)
        return shift * x

    return f


class Model:
    scale = 1

    def __call__(self, x):
        return self.inner(x)

    def inner(self, x):
        return x


class OtherModel(Model):
    def inner(self, x):
        return 2 * x


def decorated(function):
    return wraps(function)(lambda x: function(x))


@pytest.mark.parametrize(
    "make",
    [
        plain,
        with_helper,
        closing,
        lambda k: define(f"def f(x):\n    return x in {{'a', 'b', {k}}}"),
        lambda k: define(f"def f(x):\n    return x in {{(0, 1), ({k}, 0)}}"),
        lambda k: partial(plain(), slice(k)),  # as x[:k] is a constant of Python 3.14
        lambda k: partial(plain(), k),
        lambda k: decorated(lru_cache(plain(k))),
    ],
)
def test_a_change_that_can_matter_is_noticed_and_no_other(make):
    assert digest_code(make(3)) == digest_code(make(3)) != digest_code(make(4))


def test_a_changed_class_is_noticed_and_what_a_search_changes_itself_is_not():
    assert digest_code(Model()) == digest_code(Model()) != digest_code(OtherModel())
    assert digest_code(Model().inner) != digest_code(OtherModel().inner)
    assert digest_code(plain(3, "one")) == digest_code(plain(3, "two"))
    counts = closing(1)
    before = digest_code(counts)
    counts(1.0)
    assert digest_code(counts) == before


@pytest.mark.parametrize("changed", ["objective", "constraints"])
def test_a_changed_function_does_not_get_the_old_answer(tmp_path, changed):
    def search(shift):
        functions = {"objective": plain(), "constraints": plain(1), changed: plain(shift)}
        objective = functions.pop("objective")
        constraints = {"fun": functions["constraints"], "type": "ineq"}
        options = {"vectorize": "loop", "constraints": constraints, "budget": 60, "seed": 1}
        return minimize(objective, np.zeros(2), 1.0, checkpoint=tmp_path, **options)

    search(5)
    for _ in range(2):
        with pytest.raises(
            CheckpointError, match=f"{tmp_path}.* got another: choose another folder"
        ):
            search(6)
        for path in tmp_path.glob("*/checkpoint-*"):  # the journal knows it, too
            path.unlink()


def test_what_cannot_be_compared_is_taken(tmp_path):
    def search(shift):
        options = {"vectorize": "loop", "budget": 8, "population_size": 8, "seed": 1}
        options["model"] = None  # one file of evaluations
        return minimize(plain(shift), np.zeros(2), 1.0, checkpoint=tmp_path, **options)

    search(5)
    for path in tmp_path.glob("*/checkpoint-*"):
        path.unlink()
    (journal,) = tmp_path.glob("*/evaluations.journal")
    first, rest = journal.read_bytes().split(b"\n", 1)
    header = json.loads(first)
    for code in ({}, {"code": "cpython-300 0123"}):  # before there was one; of another Python
        old = {name: value for name, value in header.items() if name != "code"}
        journal.write_bytes(json.dumps(old | code).encode() + b"\n" + rest)
        assert search(6).evaluations == 8
        for path in tmp_path.glob("*/checkpoint-*"):
            path.unlink()


def test_a_corrected_function_with_arguments_is_not_taken_for_the_old_one(tmp_path):
    options = {
        "args": (1.0,),
        "vectorize": "loop",
        "budget": 60,
        "seed": 1,
        "checkpoint": tmp_path,
    }
    old = define("def f(x, a):\n    return float(((x - a) ** 2).sum())")
    corrected = define("def f(x, a):\n    return float(((x + a) ** 2).sum())")
    minimize(old, np.zeros(2), 1.0, **options)
    with pytest.raises(CheckpointError, match="expected the code of the objective"):
        minimize(corrected, np.zeros(2), 1.0, **options)
