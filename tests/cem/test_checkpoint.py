import errno
import hashlib
import json
import math
import os
import pickle
from pathlib import Path

import pytest
import torch

from cem import Checkpointer, CheckpointError
from cem.checkpoint import read_checkpoint, write_checkpoint


def bits(tensor):
    return tensor.dtype, tuple(tensor.shape), tensor.numpy().tobytes()


def forge(path, **changes):
    """Write a checkpoint with parts exchanged and the digest made to match."""
    body = {"format": "cem-checkpoint", "version": 1, "step": 1, "fingerprint": {}, "state": {}, **changes}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    path.write_text(json.dumps({**body, "sha256": digest}))


class TestFile:
    @pytest.mark.parametrize(
        "tensor",
        [
            torch.tensor([math.nan, math.inf, -0.0, 1e-45, 0.1]),
            torch.tensor([math.pi, -math.inf, 5e-324], dtype=torch.float64),
            torch.arange(6).reshape(2, 3).T,
        ],
    )
    def test_tensors_come_back_bit_for_bit(self, tmp_path, tensor):
        write_checkpoint(tmp_path / "c.json", 3, {"x": tensor})
        assert bits(read_checkpoint(tmp_path / "c.json")[1]["x"]) == bits(tensor.contiguous())

    def test_numbers_text_lists_and_mappings_come_back_as_they_were(self, tmp_path):
        state = {"a": [1, 0.1, True, None, "Lőrincz"], "b": {"c": {"d": 2**63}, "e": [[], {}]}, "f": 1e308}
        write_checkpoint(tmp_path / "c.json", 12, state)
        assert read_checkpoint(tmp_path / "c.json") == (12, state)

    @pytest.mark.parametrize(
        ("state", "error", "message"),
        [
            (
                {"x": object()},
                TypeError,
                "expected tensors, numbers, text, lists and mappings .*, got object",
            ),
            ({"x": {"tensor": 1}}, TypeError, "expected str keys other than 'tensor'"),
            ({"x": math.nan}, ValueError, "expected finite numbers in the state, got nan"),
        ],
    )
    def test_what_could_not_come_back_is_refused_and_no_file_is_made(self, tmp_path, state, error, message):
        with pytest.raises(error, match=message):
            write_checkpoint(tmp_path / "c.json", 0, state)
        assert list(tmp_path.iterdir()) == []

    def test_a_file_torn_anywhere_is_refused(self, tmp_path):
        path = tmp_path / "c.json"
        write_checkpoint(path, 3, {"x": torch.arange(3.0), "y": 5})
        whole = path.read_bytes()
        for size in range(len(whole) - 1):  # without the newline at the end it is still whole
            path.write_bytes(whole[:size])
            with pytest.raises(CheckpointError, match=r"c\.json: torn or no JSON"):
                read_checkpoint(path)

    def test_a_changed_byte_anywhere_is_refused(self, tmp_path):
        path = tmp_path / "c.json"
        write_checkpoint(path, 3, {"x": torch.arange(3.0), "y": 5})
        whole = path.read_bytes()
        for place in range(len(whole) - 1):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(CheckpointError, match=r"c\.json: "):
                read_checkpoint(path)

    def test_a_planted_pickle_is_refused_and_does_not_run(self, tmp_path):
        class Planted:
            def __reduce__(self):
                return os.mkdir, (str(tmp_path / "ran"),)

        path = tmp_path / "c.json"
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            path.write_bytes(pickle.dumps(Planted(), protocol=protocol))
            with pytest.raises(CheckpointError, match=r"c\.json: torn or no JSON"):
                read_checkpoint(path)
        torch.save({"x": Planted()}, path)
        with pytest.raises(CheckpointError, match=r"c\.json: torn or no JSON"):
            read_checkpoint(path)
        assert not (tmp_path / "ran").exists()

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            ("[]", "not a cem-checkpoint file"),
            ('{"format": "cem-checkpoint", "version": 2}', "expected version 1, got 2"),
            ('{"format": "cem-checkpoint", "version": 1}', "damaged: its SHA-256 does not match"),
        ],
    )
    def test_a_file_of_something_else_is_refused_with_the_reason(self, tmp_path, content, reason):
        (tmp_path / "c.json").write_text(content)
        with pytest.raises(CheckpointError, match=rf"c\.json: {reason}"):
            read_checkpoint(tmp_path / "c.json")

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"step": "1"}, "expected a step and a state, got '1'"),
            ({"state": {"x": {"tensor": "float16"}}}, "expected a tensor of float32.*, got 'float16'"),
            (
                {"state": {"x": {"tensor": "float32", "shape": [9], "base64": "AAAAAA=="}}},
                "9 numbers .* got 4 bytes",
            ),
        ],
    )
    def test_a_forged_file_with_a_right_digest_is_refused(self, tmp_path, changes, reason):
        forge(tmp_path / "c.json", **changes)
        with pytest.raises(CheckpointError, match=rf"c\.json: .*{reason}"):
            read_checkpoint(tmp_path / "c.json")

    def test_another_run_is_refused_with_the_setting_that_differs(self, tmp_path):
        write_checkpoint(tmp_path / "c.json", 1, {}, {"board": "10x10", "seed": 1, "sizes": (1, 2)})
        read_checkpoint(tmp_path / "c.json", {"board": "10x10", "seed": 1, "sizes": (1, 2)})
        with pytest.raises(
            CheckpointError, match=r"c\.json: belongs to another run: expected seed = 2, got 1"
        ):
            read_checkpoint(tmp_path / "c.json", {"board": "10x10", "seed": 2, "sizes": (1, 2)})
        with pytest.raises(CheckpointError, match=r"another run: expected board = None, got '10x10'"):
            read_checkpoint(tmp_path / "c.json", {"seed": 1, "sizes": (1, 2)})


class TestFullDisk:
    @pytest.fixture(params=["write", "replace", "folder fsync"])
    def failing(self, request, monkeypatch):
        """Make one step of writing a file fail as on a full disk, once armed."""
        armed = []

        def fail_when_armed(wanted, real):
            def call(*arguments, **options):
                if armed and (wanted != "folder fsync" or os.path.isdir(f"/proc/self/fd/{arguments[0]}")):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return real(*arguments, **options)

            return call

        if request.param == "write":
            real_open = Path.open

            def open_full(path, mode="r", *arguments, **options):
                file = real_open(path, mode, *arguments, **options)
                if armed and "x" in mode:
                    file.write(b'{"half":')
                    file.flush()
                    file.close()
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return file

            monkeypatch.setattr(Path, "open", open_full)
        elif request.param == "replace":
            monkeypatch.setattr(Path, "replace", fail_when_armed("replace", Path.replace))
        else:
            monkeypatch.setattr(os, "fsync", fail_when_armed(request.param, os.fsync))
        return armed, request.param

    def test_a_write_that_fails_names_the_file_and_leaves_what_was_there(self, tmp_path, failing):
        armed, step = failing
        checkpointer = Checkpointer(tmp_path)
        checkpointer.save(1, {"x": torch.zeros(3)})
        before = (tmp_path / "checkpoint-000001.json").read_bytes()
        armed.append(True)
        with pytest.raises(OSError, match=r"No space left on device: '.*checkpoint-000002.json'") as caught:
            checkpointer.save(2, {"x": torch.ones(3)})
        assert caught.value.errno == errno.ENOSPC
        armed.clear()
        assert not list(tmp_path.glob("*.tmp"))
        assert (tmp_path / "checkpoint-000001.json").read_bytes() == before
        # The file has its name before the folder is synchronised: then it is there, and whole.
        assert checkpointer.load_latest().step == (2 if step == "folder fsync" else 1)


class TestCheckpointer:
    def test_the_newest_files_are_kept(self, tmp_path):
        checkpointer = Checkpointer(tmp_path / "deep" / "run", keep=2)
        for step in (0, 5, 6, 1_000_000):
            checkpointer.save(step, {"step": step})
        names = sorted(path.name for path in checkpointer.folder.iterdir())
        assert names == ["checkpoint-000006.json", "checkpoint-1000000.json"]
        assert checkpointer.load_latest().state == {"step": 1_000_000}

    def test_what_a_killed_write_left_is_swept(self, tmp_path):
        (tmp_path / ".checkpoint-000007.json.4711.tmp").write_text('{"half":')
        Checkpointer(tmp_path).save(8, {})
        assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-000008.json"]

    def test_a_torn_a_foreign_and_a_renamed_file_are_passed_over_and_reported(self, tmp_path):
        checkpointer = Checkpointer(tmp_path, fingerprint={"seed": 1}, keep=9)
        for step in (1, 2, 3):
            checkpointer.save(step, {"step": step})
        whole = (tmp_path / "checkpoint-000003.json").read_bytes()
        (tmp_path / "checkpoint-000003.json").write_bytes(whole[:-20])
        (tmp_path / "checkpoint-000005.json").write_bytes(whole)
        write_checkpoint(tmp_path / "checkpoint-000004.json", 4, {}, {"seed": 2})
        loaded = checkpointer.load_latest()
        assert (loaded.step, loaded.state) == (2, {"step": 2})
        assert [str(refused)[:44] for refused in loaded.rejected] == [
            "checkpoint-000005.json: holds step 3: rename",
            "checkpoint-000004.json: belongs to another r",
            "checkpoint-000003.json: torn or no JSON: Unt",
        ]

    def test_a_link_is_neither_read_nor_written_through(self, tmp_path):
        checkpointer = Checkpointer(tmp_path / "run")
        checkpointer.save(1, {})
        (tmp_path / "run" / "checkpoint-000002.json").symlink_to("../mine")
        for use in (checkpointer.load_latest, lambda: checkpointer.save(2, {})):
            with pytest.raises(OSError, match=r"of its own, got a link: '.*checkpoint-000002.json'"):
                use()
        assert not (tmp_path / "mine").exists()

    def test_a_state_that_is_not_accepted_is_passed_over(self, tmp_path):
        checkpointer = Checkpointer(tmp_path)
        for step in (1, 2):
            checkpointer.save(step, {"step": step})

        def accept(state):
            if state["step"] == 2:
                raise ValueError("an even step")

        loaded = checkpointer.load_latest(accept)
        assert loaded.step == 1
        assert [refused.reason for refused in loaded.rejected] == ["an even step"]

    def test_a_folder_without_a_usable_checkpoint_is_an_error_with_every_reason(self, tmp_path):
        checkpointer = Checkpointer(tmp_path)
        with pytest.raises(CheckpointError, match=r"got none .no file named checkpoint-NNNNNN.json"):
            checkpointer.load_latest()
        (tmp_path / "checkpoint-000001.json").write_text("")
        (tmp_path / "checkpoint-000002.json").write_text("{}")
        with pytest.raises(
            CheckpointError, match=r"000002.json: not a cem-check.*000001.json: torn or no JSON"
        ):
            checkpointer.load_latest()

    @pytest.mark.parametrize(
        ("options", "error"),
        [({"keep": 1}, ValueError), ({"interval_s": -1.0}, ValueError), ({"keep": 2.5}, TypeError)],
    )
    def test_bad_options_are_refused(self, tmp_path, options, error):
        with pytest.raises(error, match=r"expected .*, got"):
            Checkpointer(tmp_path, **options)
