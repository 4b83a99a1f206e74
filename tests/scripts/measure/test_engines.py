"""Good controllers for every feature set, and engines compiled before they are wanted."""

from __future__ import annotations

import threading

import pytest
from measure.engines import GOOD, build_engines, good_controller

from kernels import BuildError
from kernels.build import Extension
from tetris import Rules, feature_names, native, rollout


@pytest.mark.parametrize("features", GOOD)
def test_every_feature_set_has_a_controller_that_plays_on(features: str) -> None:
    controller = good_controller(features)
    assert controller.features == features
    # A random one ends a game every thirty decisions.
    played = rollout([controller.weights], Rules(10, 20), 8, 1000, 1, features=features)
    assert int(played.games) <= 1


def test_every_library_is_built_once_and_several_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Extension] = []
    together = threading.Barrier(2, timeout=20.0)

    def build(extension: Extension, *, quiet: bool) -> None:
        assert quiet
        if extension != native.resampling_extension():
            together.wait()
        built.append(extension)

    monkeypatch.setattr(Extension, "build", build)
    monkeypatch.setattr("measure.engines.os.sched_getaffinity", lambda process: {0, 1})
    build_engines([("dt", 10), ("dt", 6), ("bertsekas", 4), ("dt", 10)])
    names = [feature_names("dt"), feature_names("bertsekas", 4)]
    expected = {make(each) for each in names for make in (native.extension, native.cuda_extension)}
    expected.add(native.resampling_extension())
    assert (set(built), len(built)) == (expected, 5)


def test_one_that_cannot_be_built_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(extension: Extension, *, quiet: bool) -> None:
        if extension.cuda:
            raise BuildError("no nvcc found")

    monkeypatch.setattr(Extension, "build", build)
    with pytest.raises(BuildError, match="no nvcc found"):
        build_engines([("dt", 10)])
