import math

import pytest
import torch

from cem import Checkpointer, CheckpointError
from cem.run.checkpoint import read_checkpoint, write_checkpoint


def save_steps(checkpointer, *steps):
    for step in steps:
        checkpointer.save(step, {"step": step})


class TestFile:
    @pytest.fixture
    def path(self, tmp_path):
        return tmp_path / "c.json"

    def test_tensors_come_back_bit_for_bit_and_all_else_as_it_was(self, path):
        tensors = {
            "single": torch.tensor([math.nan, math.inf, -0.0, 1e-45, 0.1]),
            "double": torch.tensor([math.pi, -math.inf, 5e-324], dtype=torch.float64),
            "whole": torch.arange(6).reshape(2, 3).T,
        }
        rest = {"a": [1, 0.1, True, None, "Lőrincz"], "b": {"c": {"d": 2**63}, "e": [[], {}]}, "f": 1e308}
        write_checkpoint(path, 12, {**rest, **tensors})
        step, state = read_checkpoint(path)
        for name, tensor in tensors.items():
            found = state.pop(name)
            assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
            assert found.numpy().tobytes() == tensor.contiguous().numpy().tobytes()
        assert (step, state) == (12, rest)

    @pytest.mark.parametrize(
        ("value", "error", "message"),
        [
            (object(), TypeError, "expected tensors, numbers, text, lists and mappings .*, got object"),
            ({"tensor": 1}, TypeError, "expected str keys other than 'tensor'"),
            (math.nan, ValueError, "expected finite numbers in the state, got nan"),
        ],
    )
    def test_what_could_not_come_back_is_refused_and_no_file_is_made(self, path, value, error, message):
        with pytest.raises(error, match=message):
            write_checkpoint(path, 0, {"x": value})
        assert list(path.parent.iterdir()) == []

    def test_a_file_torn_or_changed_anywhere_is_refused(self, path):
        write_checkpoint(path, 3, {"x": torch.arange(3.0), "y": 5})
        whole = path.read_bytes()
        for place in range(len(whole) - 1):  # without the newline at the end it is still whole
            path.write_bytes(whole[:place])
            with pytest.raises(CheckpointError, match=r"c\.json: torn or no JSON"):
                read_checkpoint(path)
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(CheckpointError, match=r"c\.json: "):
                read_checkpoint(path)

    def test_another_version_is_refused(self, path):
        path.write_text('{"format": "cem-checkpoint", "version": 2}')
        with pytest.raises(CheckpointError, match=r"c\.json: expected version 1, got 2"):
            read_checkpoint(path)

    def test_another_run_is_refused_with_the_setting_that_differs(self, path):
        run = {"board": "10x10", "seed": 1, "sizes": (1, 2)}
        write_checkpoint(path, 1, {}, run)
        read_checkpoint(path, run)
        with pytest.raises(CheckpointError, match=r"c\.json: belongs to another run: .* seed = 2, got 1"):
            read_checkpoint(path, {**run, "seed": 2})
        with pytest.raises(CheckpointError, match=r"another run: expected board = None, got '10x10'"):
            read_checkpoint(path, {"seed": 1, "sizes": (1, 2)})


class TestCheckpointer:
    def test_the_newest_files_are_kept_and_what_a_killed_write_left_is_swept(self, tmp_path):
        folder = tmp_path / "deep" / "run"
        checkpointer = Checkpointer(folder, keep=2)
        save_steps(checkpointer, 0, 5)
        (folder / ".checkpoint-000007.json.4711.tmp").write_text('{"half":')
        save_steps(checkpointer, 6, 1_000_000)
        assert sorted(path.name for path in folder.iterdir()) == [
            "checkpoint-000006.json",
            "checkpoint-1000000.json",
        ]
        assert checkpointer.load_latest().state == {"step": 1_000_000}

    def test_what_is_torn_foreign_renamed_or_not_accepted_is_passed_over_and_reported(self, tmp_path):
        checkpointer = Checkpointer(tmp_path, fingerprint={"seed": 1}, keep=9)
        save_steps(checkpointer, 1, 2, 3, 6)
        whole = (tmp_path / "checkpoint-000003.json").read_bytes()
        (tmp_path / "checkpoint-000003.json").write_bytes(whole[:-20])
        (tmp_path / "checkpoint-000005.json").write_bytes(whole)
        write_checkpoint(tmp_path / "checkpoint-000004.json", 4, {}, {"seed": 2})

        def accept(state):
            if state["step"] == 6:
                raise ValueError("a state too many")

        loaded = checkpointer.load_latest(accept)
        assert (loaded.step, loaded.state) == (2, {"step": 2})
        assert [str(refused)[:44] for refused in loaded.rejected] == [
            "checkpoint-000006.json: a state too many",
            "checkpoint-000005.json: holds step 3: rename",
            "checkpoint-000004.json: belongs to another r",
            "checkpoint-000003.json: torn or no JSON: Unt",
        ]

    def test_a_folder_without_a_usable_checkpoint_is_an_error_with_every_reason(self, tmp_path):
        checkpointer = Checkpointer(tmp_path)
        with pytest.raises(CheckpointError, match=r"got none .no file named checkpoint-NNNNNN.json"):
            checkpointer.load_latest()
        (tmp_path / "checkpoint-000001.json").write_text("")
        (tmp_path / "checkpoint-000002.json").write_text("{}")
        reasons = r"000002.json: not a cem-check.*000001.json: torn or no JSON"
        with pytest.raises(CheckpointError, match=reasons):
            checkpointer.load_latest()
