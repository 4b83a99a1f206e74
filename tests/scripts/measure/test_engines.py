"""Good controllers for every feature set, and engines compiled before they are wanted."""

from __future__ import annotations

import pytest
from measure import engines
from measure.engines import GOOD, build_engines, good_weights

from kernels import BuildError
from kernels.loader import Extension
from kernels.loader.ahead import Built
from tetris import Rules, feature_names, native, rollout


@pytest.mark.parametrize("features", GOOD)
def test_every_feature_set_has_a_controller_that_plays_on(features: str) -> None:
    # A random one ends a game every thirty decisions.
    played = rollout([good_weights(features, 10)], Rules(10, 20), 8, 1000, 1, features=features)
    assert int(played.games) <= 1


def test_every_library_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[Extension] = []
    monkeypatch.setattr(engines, "build_together", lambda extensions: wanted.extend(extensions) or ())
    build_engines([("dt", 10), ("dt", 6), ("bertsekas", 4), ("dt", 10)])
    names = [feature_names("dt"), feature_names("bertsekas", 4)]
    libraries = [native.extension(each) for each in names]
    expected = {*libraries, *map(native.with_cuda, libraries)}
    expected.add(native.resampling_extension())
    assert (set(wanted), len(wanted)) == (expected, 5)


def test_one_that_cannot_be_built_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Built("x", "failed", 0.1, error="no nvcc found")
    monkeypatch.setattr(engines, "build_together", lambda extensions: (failed,))
    with pytest.raises(BuildError, match="no nvcc found"):
        build_engines([("dt", 10)])
