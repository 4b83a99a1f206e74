"""A page in Firefox or WebKitGTK for tests, driven by the commands of WebDriver.

Firefox takes them by its own protocol, Marionette, and WebKitGTK by HTTP.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

HOST = "127.0.0.1"
_SECONDS = 60.0
_KEYS = {"ArrowLeft": "\ue012", "ArrowUp": "\ue013", "ArrowRight": "\ue014"}
_PATHS = {"Navigate": "url", "ExecuteScript": "execute/sync", "PerformActions": "actions"}
_SMALL_BROWSER = {"webkitgtk:browserOptions": {"args": ["--automation"]}}


class DrivenPage:
    """A page with the methods of chromium.py that WebDriver knows.

    Args:
        command: Starts the browser or its driver.
        connect: Returns a function that calls a command of WebDriver with its parameters.
    """

    def __init__(self, command: list[str], connect: Callable[[], Callable[..., Any]]) -> None:
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # `close` ends what the command starts, too.
        )
        self._call = connect()

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait()

    def open(self, file: Path) -> None:
        self._call("Navigate", url=file.resolve().as_uri())

    def evaluate(self, expression: str) -> Any:
        return self._call("ExecuteScript", script=f"return {expression}", args=[])

    def wait_for(self, condition: str) -> None:
        _wait_for(lambda: self.evaluate(f"Boolean({condition})"))

    def press(self, key: str) -> None:
        value = _KEYS.get(key, key)
        strokes = [{"type": kind, "value": value} for kind in ("keyDown", "keyUp")]
        self._call("PerformActions", actions=[{"type": "key", "id": "k", "actions": strokes}])


def _wait_for(condition: Callable[[], Any]) -> None:
    due = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < due
        time.sleep(0.05)


def firefox(folder: Path) -> DrivenPage:
    """Open Firefox without a window; ``folder`` is for what it keeps."""
    (folder / "user.js").write_text('user_pref("marionette.port", 0);')
    port = folder / "MarionetteActivePort"

    def connect() -> Callable[..., Any]:
        _wait_for(lambda: port.exists() and port.read_text())
        with socket.create_connection((HOST, int(port.read_text()))) as connection:
            stream = connection.makefile("rwb")  # It keeps the connection open.

        def read() -> Any:
            length = b""
            while not length.endswith(b":"):
                length += stream.read(1)
            return json.loads(stream.read(int(length[:-1])))

        def call(name: str, **parameters: Any) -> Any:
            message = json.dumps([0, 1, f"WebDriver:{name}", parameters]).encode()
            stream.write(b"%d:%b" % (len(message), message))
            stream.flush()
            _, _, error, answer = read()
            assert error is None, error
            return answer.get("value")

        read()  # Firefox introduces itself.
        call("NewSession")
        return call

    return DrivenPage(
        ["firefox", "--headless", "--marionette", "--profile", str(folder)], connect
    )


def webkit(folder: Path) -> DrivenPage:
    """Open the small browser of WebKitGTK on a screen that nobody sees."""
    with socket.create_server((HOST, 0)) as free:
        _, port = free.getsockname()
    address = f"http://{HOST}:{port}/session"

    def post(url: str, /, **parameters: Any) -> Any:
        content = json.dumps(parameters).encode()
        request = Request(url, content, {"Content-Type": "application/json"})
        with urlopen(request, timeout=_SECONDS) as answer:
            return json.load(answer)["value"]

    def connect() -> Callable[..., Any]:
        def listens() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex((HOST, port)) == 0

        _wait_for(listens)
        session = post(address, capabilities={"alwaysMatch": _SMALL_BROWSER})["sessionId"]
        return lambda name, **parameters: post(
            f"{address}/{session}/{_PATHS[name]}", **parameters
        )

    command = ["xvfb-run", "--auto-servernum", "WebKitWebDriver", f"--port={port}"]
    return DrivenPage(command, connect)
