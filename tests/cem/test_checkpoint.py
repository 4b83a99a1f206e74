import math

import numpy as np
import pytest
import torch

from cem import Checkpointer, CheckpointError
from cem.run.checkpoint import read_checkpoint, write_checkpoint


@pytest.fixture
def path(tmp_path):
    return tmp_path / "c.json"


def test_tensors_come_back_bit_for_bit_and_all_else_as_it_was(path):
    tensors = {
        "single": torch.tensor([math.nan, math.inf, -0.0, 1e-45, 0.1]),
        "double": torch.tensor([math.pi, -math.inf, 5e-324], dtype=torch.float64),
        "whole": torch.arange(6).reshape(2, 3).T,
        "scalar": torch.tensor(2),
    }
    rest = {
        "a": [1, 0.1, True, None, "Lőrincz"],
        "b": {"tensor": {"d": 2**63}, "e": [[], {}]},
        "f": 1e308,
        "g": {0: {1: "b"}},
    }
    write_checkpoint(path, {**rest, **tensors}, {"seed": 1})
    state, fingerprint = read_checkpoint(path)
    for name, tensor in tensors.items():
        found = state.pop(name)
        assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
        assert found.numpy().tobytes() == tensor.contiguous().numpy().tobytes()
    assert (state, fingerprint) == (rest, {"seed": 1})


def test_an_optimizer_of_torch_comes_back(path):
    weights = torch.nn.Parameter(torch.ones(2))
    first, second = (torch.optim.Adam([weights], lr=np.float32(0.5)) for _ in range(2))
    weights.sum().backward()
    first.step()
    write_checkpoint(path, first.state_dict(), {})
    second.load_state_dict(read_checkpoint(path)[0])
    assert torch.equal(second.state[weights]["exp_avg"], first.state[weights]["exp_avg"])


@pytest.mark.parametrize(
    ("value", "error"),
    [(object(), TypeError), (math.nan, ValueError), ({0: 1, "a": 2}, TypeError)],
)
def test_of_what_could_not_come_back_no_file_is_made(path, value, error):
    with pytest.raises(error):
        write_checkpoint(path, {"x": value}, {})
    assert list(path.parent.iterdir()) == []


def test_a_file_torn_or_changed_anywhere_is_an_error(path):
    write_checkpoint(path, {"x": torch.arange(3.0), "y": 5}, {})
    whole = path.read_bytes()
    for place in range(len(whole)):
        for changed in (
            whole[:place],
            whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :],
        ):
            path.write_bytes(changed)
            with pytest.raises(CheckpointError, match=r"^c\.json: torn or damaged: "):
                read_checkpoint(path)


def test_the_newest_files_are_kept_and_what_a_killed_write_left_is_swept(tmp_path):
    folder = tmp_path / "deep" / "run"
    checkpointer = Checkpointer(folder)
    for step in (0, 5, 6, 7):
        checkpointer.save(step, {"step": step})
    checkpointer.save(7, {"step": 7})  # in place of the same
    assert len(list(folder.iterdir())) == 3
    (folder / ".checkpoint-000007.json.4711.tmp").write_text('{"half":')
    checkpointer.save(1_000_000, {"step": 1_000_000})
    assert sorted(path.name for path in folder.iterdir()) == [
        "checkpoint-000006.json",
        "checkpoint-000007.json",
        "checkpoint-1000000.json",
    ]
    assert checkpointer.load_latest().state == {"step": 1_000_000}


def test_a_damaged_file_is_passed_over_for_the_one_before_it(tmp_path):
    checkpointer = Checkpointer(tmp_path)
    with pytest.raises(
        CheckpointError, match=r"got none .no file named checkpoint-NNNNNN.json"
    ):
        checkpointer.load_latest()
    for step in (1, 2):
        newest = checkpointer.save(step, {"step": step})
    newest.write_bytes(newest.read_bytes()[:-20])
    found = checkpointer.load_latest()
    assert (found.step, found.state) == (1, {"step": 1})
    assert found.passed_over[0].startswith(
        "checkpoint-000002.json: torn or damaged: its SHA-256 does not"
    )
    found.path.write_text("")
    with pytest.raises(
        CheckpointError, match=r"got none .*000002.json: torn.*000001.json: torn"
    ):
        checkpointer.load_latest()


def test_another_run_is_an_error_that_names_the_setting(tmp_path):
    run = {"board": "10x10", "seed": 1, "sizes": (1, 2)}
    Checkpointer(tmp_path, fingerprint=run).save(1, {})
    assert Checkpointer(tmp_path, fingerprint=run).load_latest().step == 1
    with pytest.raises(
        CheckpointError, match=r"01\.json: belongs to another run: .* seed = 2, got 1"
    ):
        Checkpointer(tmp_path, fingerprint={**run, "seed": 2}).load_latest()
    with pytest.raises(
        CheckpointError, match=r"another run: expected board = None, got '10x10'"
    ):
        Checkpointer(tmp_path, fingerprint={"seed": 1, "sizes": (1, 2)}).load_latest()
