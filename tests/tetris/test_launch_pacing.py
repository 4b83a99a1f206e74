"""Launches: bounded in length, ahead of the device, with a device that is made of
arithmetic."""

from __future__ import annotations

import pytest
import torch

from tetris.play import launch_pacing
from tetris.play.launch_pacing import LAUNCH_SECONDS, LaunchPacer


class Device:
    """A device on which a step takes ``pace`` seconds; the host takes no time but where it
    waits."""

    def __init__(self, pace: float) -> None:
        self.pace = pace
        self.host = self.busy_until = 0.0
        self.sizes: list[int] = []
        self.idle = 0.0

    def launch(self, size: int) -> None:
        self.idle += max(0.0, self.host - self.busy_until)
        self.busy_until = max(self.host, self.busy_until) + size * self.pace
        self.sizes.append(size)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device(1e-4)

    class Event:
        def __init__(self, enable_timing: bool, blocking: bool) -> None:
            assert enable_timing
            assert blocking

        def record(self) -> None:
            self.at = max(made.host, made.busy_until)

        def query(self) -> bool:
            return self.at <= made.host

        def synchronize(self) -> None:
            made.host = max(made.host, self.at)

        def elapsed_time(self, end: Event) -> float:
            return (end.at - self.at) * 1e3

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(launch_pacing, "_seconds_per_step", {})
    return made


def test_work_that_was_seen_before_leaves_the_device_no_pause(device: Device) -> None:
    LaunchPacer("work").run(1000, device.launch)
    idle = device.idle
    device.sizes.clear()
    LaunchPacer("work").run(100_000, device.launch)
    assert device.idle == idle
    assert device.sizes[0] * device.pace == pytest.approx(LAUNCH_SECONDS, rel=0.01)


def test_work_that_becomes_cheaper_does_not_spoil_the_next_of_its_kind(device: Device) -> None:
    for _ in range(2):
        games, device.pace = LaunchPacer("work", steady=False), 1e-4
        games.run(5000, device.launch)
        device.pace = 1e-9
        games.run(1 << 24, device.launch)
        assert max(device.sizes) > 1 << 19
        device.sizes.clear()
    device.pace = 1e-4
    LaunchPacer("work", steady=False).run(5000, device.launch)
    assert max(device.sizes) * device.pace <= LAUNCH_SECONDS * 1.01


def test_the_host_is_a_bounded_time_ahead(device: Device) -> None:
    ahead = []

    def check() -> None:
        ahead.append(device.busy_until - device.host)

    LaunchPacer("work").run(100_000, device.launch, check)
    assert max(ahead) <= 3 * LAUNCH_SECONDS


def test_short_work_leaves_the_host_time_for_other_work(device: Device) -> None:
    games = LaunchPacer("work")
    for _ in range(200):
        games.run(4, device.launch)
    idle = device.idle
    device.host += 0.04
    games.run(4, device.launch)
    assert device.idle == idle


def test_work_becomes_slower_and_launches_shorter(device: Device) -> None:
    games = LaunchPacer("work")
    games.run(50_000, device.launch)
    device.pace *= 5
    device.sizes.clear()
    games.run(50_000, device.launch)
    assert device.sizes[-2] * device.pace == pytest.approx(LAUNCH_SECONDS, rel=0.01)


@pytest.mark.parametrize("games", [1, 135_168, 1 << 26])
def test_the_first_launch_does_not_do_too_much(device: Device, games: int) -> None:
    device.pace = games * 1e-8
    LaunchPacer("work", games).run(1000, device.launch)
    assert device.sizes[0] * device.pace < 1
    assert sum(device.sizes) == 1000
