"""A pseudo-terminal for tests: what a person sees and types."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import termios
import threading
import time

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Pty:
    """A pseudo-terminal of 80 x 24, its other end read by a thread."""

    def __init__(self) -> None:
        self.hand, self.side = pty.openpty()
        fcntl.ioctl(self.side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self.side)
        self.seen = b""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.output = io.open(os.dup(self.side), "w", encoding="utf-8")  # noqa: SIM115, UP020

    def press(self, keys: str) -> None:
        os.write(self.hand, keys.encode())

    def text(self) -> str:
        return self.seen.decode(errors="replace")

    def wait_for(self, text: str) -> None:
        """Wait for a text, in which escape sequences count where it has some."""
        due = time.monotonic() + 60
        while text not in (self.text() if "\x1b" in text else ESCAPES.sub("", self.text())):
            assert time.monotonic() < due, f"{text!r} did not come"
            time.sleep(0.01)

    def close(self) -> None:
        """Close the side, which ends the reader, and only then the hand, whose number others
        may take."""
        self.output.close()
        os.close(self.side)
        self.reader.join()
        os.close(self.hand)

    def _read(self) -> None:
        try:
            while read := os.read(self.hand, 65536):
                self.seen += read
        except OSError:  # closed
            return
