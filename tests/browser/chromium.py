"""A headless Chromium for tests, driven by its DevTools protocol over two pipes: nothing to
install."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "chromium-headless-shell")
_SECONDS = 60.0
_KEY_CODES = {
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
}


def find_chromium() -> str | None:
    """Return the path of a Chromium or Chrome; None where there is none."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


class Navigated(Exception):  # noqa: N818 - no error where a page loads itself again
    """The page was left while it was asked something."""


class Page:
    """A page in a browser of its own: ``with Page(program, folder) as page: page.open(file)``.

    Attributes:
        problems: What the page wrote to the console as a warning or an error, exceptions it did
            not catch, and requests for anything but files.
    """

    def __init__(
        self, program: str, profile: Path, width: int = 1000, height: int = 800
    ) -> None:
        """Start the browser; ``profile`` is a folder for what it keeps, the size the window's,
        in pixels."""
        self.problems: list[str] = []
        self._size = width, height
        self._number = 0
        self._loaded = False
        self._buffer = b""
        theirs, self._to = os.pipe()
        self._from, answers = os.pipe()
        command = [
            *(
                program,
                "--headless",
                "--remote-debugging-pipe",
                "--no-sandbox",
                "--disable-gpu",
            ),
            *("--no-first-run", "--disable-extensions", "--disable-dev-shm-usage"),
            f"--user-data-dir={profile}",
        ]
        # The browser reads from descriptor 3 and writes to 4, whatever numbers the pipes have
        # here.
        moved = f'exec 3<&{theirs} 4>&{answers}; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", moved, "bash", *command],
            pass_fds=(theirs, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs)
        os.close(answers)

    def __enter__(self) -> Page:
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session: str = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setFocusEmulationEnabled", enabled=True
        )  # keys are for it, whatever is in front
        self.resize(*self._size)
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._to)  # the browser ends when nobody talks to it
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)

    def open(self, file: Path | str, ready: str = "true") -> None:
        """Open a file or an address and wait until it is loaded and an expression of JavaScript
        is true."""
        self._loaded = False
        self.call(
            "Page.navigate", url=file if isinstance(file, str) else file.resolve().as_uri()
        )
        due = time.monotonic() + _SECONDS
        while not self._loaded:
            assert time.monotonic() < due, f"{file} does not load; {self.problems}"
            self._note(self._read())
        self.wait_for(ready)

    def wait_for(self, condition: str) -> None:
        """Wait until an expression of JavaScript is true."""
        due, holds = time.monotonic() + _SECONDS, False
        while not holds:
            assert time.monotonic() < due, f"never came true: {condition}; {self.problems}"
            time.sleep(0.02)
            with contextlib.suppress(Navigated):
                holds = self.evaluate(f"Boolean({condition})")

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript, awaited, as plain values."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key, named as in ``KeyboardEvent.key``."""
        text = {"text": key} if len(key) == 1 else {}
        named = {"key": key, "windowsVirtualKeyCode": _KEY_CODES.get(key, ord(key[0]))}
        self.call("Input.dispatchKeyEvent", type="keyDown", **named, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the size of the window in pixels, and whether dark colours are preferred."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def touch(self, *points: tuple[float, float]) -> None:
        """Put a finger on the first point of the window, move it along the others and lift
        it."""
        self.call("Emulation.setTouchEmulationEnabled", enabled=True)
        for number, (x, y) in enumerate(points):
            kind = "touchMove" if number else "touchStart"
            self.call("Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": x, "y": y}])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def screenshot(self, path: Path) -> None:
        """Write a picture of the whole page."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol on the page."""
        return self._call(method, self._session, **parameters)

    def _call(
        self, method: str, session: str | None = None, **parameters: Any
    ) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            received = self._read()
            if received.get("id") == self._number:
                if "navigated" in received.get("error", {}).get("message", ""):
                    raise Navigated
                assert "error" not in received, (method, received["error"])
                answer: dict[str, Any] = received["result"]
                return answer
            self._note(received)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert select.select([self._from], [], [], _SECONDS)[0], "the browser is silent"
            read = os.read(self._from, 1 << 20)
            assert read, "the browser has ended"
            self._buffer += read
        message, _, self._buffer = self._buffer.partition(b"\0")
        received: dict[str, Any] = json.loads(message)
        return received

    def _note(self, message: dict[str, Any]) -> None:
        event, params = message.get("method"), message.get("params", {})
        if event == "Page.loadEventFired":
            self._loaded = True
        elif event == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(params["exceptionDetails"]))
        elif event == "Runtime.consoleAPICalled" and params["type"] in (
            "error",
            "warning",
            "assert",
        ):
            self.problems.append(json.dumps(params["args"]))
        elif event == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(json.dumps(params["entry"]))
        elif event == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith(("file:", "data:", "blob:")):
                self.problems.append(f"request for {url}")
