"""A live view of runs: a server on the loopback address whose page follows their folders."""

import hashlib
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from os.path import normpath
from pathlib import Path
from urllib.parse import parse_qs

from kernels.support.files import check_own
from kernels.support.printable import printable
from tetris.report.page import report_page, runs_page
from tetris.training.run_folder import RunFolder, load_run

ADDRESS = "127.0.0.1"
"""The loopback address: other machines cannot reach it."""

_HOSTS = (ADDRESS, "localhost")


class ReportServer(ThreadingHTTPServer):
    """Serves the report of a run, a comparison, or the runs of a folder, on `ADDRESS`."""

    daemon_threads = True

    def __init__(self, runs: Sequence[Path], port: int = 0) -> None:
        """Listen on a port; OSError if it is taken.

        Args:
            runs: The folders of runs, or the folder that holds runs.
            port: The port; 0: a free one.
        """
        super().__init__((ADDRESS, port), _Handler)
        self.url = f"http://{ADDRESS}:{self.server_port}/"
        self._runs = list(runs)
        self._folder = None if RunFolder(runs[0]).config.is_file() else runs[0]
        # The version and the page of the last report. One assignment replaces both, so that
        # requests in other threads never see a version with the page of another.
        self._last_report = "", ""

    def page(self, names: Sequence[str] = ()) -> tuple[str, str | None]:
        """Return the page for a request, and its version.

        If the server shows a folder of runs and there are no names, the page is a list of the
        runs, and its version is None. Otherwise the page is a report of one or several runs.
        The version of a report is a digest of the runs' files. If it is the version of the last
        report, the method returns that report again.

        Args:
            names: The names of the runs to report, if the server shows a folder of runs.

        Raises:
            OSError, ValueError: If a run cannot be read.
        """
        runs = self._runs
        if self._folder is not None:
            if not names:
                return runs_page(self._folder), None
            # The names come from a request, which must not reach other folders. So only the
            # last part of a name such as "../run" is used, and nothing of "..".
            distinct_names = dict.fromkeys(names)
            runs = [self._folder / Path(normpath(f"/{name}")).name for name in distinct_names]
            for run in runs:
                check_own(run)  # It raises if the folder is a link.
                RunFolder(run).recipe()  # It raises if the folder holds no run.
        version = _version(runs)
        last_version, page = self._last_report
        if version != last_version:
            # No lock is held here, so that requests for other pages do not have to wait.
            records = [load_run(run) for run in runs]
            # The page shows only the progress of the first run.
            is_running = RunFolder(runs[0]).in_use()
            page = report_page(records, live=True, running=is_running)
            page = page.replace("<html ", f'<html data-version="{version}" ', 1)
            self._last_report = version, page
        return page, version


def _version(runs: Sequence[Path]) -> str:
    """Return a digest of the runs: the state of their files, and which are in progress."""
    folders = [RunFolder(run) for run in runs]
    in_use = [(str(run.path), run.in_use()) for run in folders]
    stats = []
    for run in folders:
        for file in (run.config, run.metrics, run.controller, run.starts, run.note):
            stat = file.stat() if file.exists() else None
            stats.append(stat and (stat.st_mtime_ns, stat.st_size))
    return hashlib.sha256(repr((in_use, stats)).encode()).hexdigest()[:16]


class _Handler(BaseHTTPRequestHandler):
    server: ReportServer
    error_message_format = (
        '<!doctype html>\n<html lang="en"><meta charset="utf-8">'
        '<meta http-equiv="refresh" content="2">'
        "<title>Waiting</title><p>%(explain)s</p></html>\n"
    )

    def do_GET(self) -> None:
        """Answer an HTTP request: send the page, or an error if a run cannot be read.

        ``http.server`` calls this method for GET and for HEAD. The answer to HEAD has no body.
        """
        # A page of another site could reach this server under the name of that site, by DNS
        # rebinding. So only the names of this machine are accepted. The header is HOST:PORT or,
        # for port 80, HOST.
        host, _, _ = self.headers.get("Host", "").partition(":")
        if host not in _HOSTS:
            self.send_error(
                HTTPStatus.FORBIDDEN, explain="expected the host 127.0.0.1 or localhost"
            )
            return
        path, _, query = self.path.partition("?")
        if path != "/":
            self.send_error(HTTPStatus.NOT_FOUND, explain="expected /")
            return
        try:
            run_names = parse_qs(query).get("run", ())
            page, version = self.server.page(run_names)
        except Exception as error:
            # Show the error in the browser. The server keeps running.
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, explain=printable(error))
            return
        self._send_page(page.encode(), version)

    def _send_page(self, content: bytes, version: str | None) -> None:
        """Send a page, and its version as a header that the page in the browser compares."""
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        if version is not None:
            self.send_header("ETag", version)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    do_HEAD = do_GET  # noqa: N815 - the name that http.server asks for

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of http.server
        """Log nothing."""
