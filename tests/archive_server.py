"""A web server of files, with faults on demand."""

import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

Fault = Callable[[BaseHTTPRequestHandler, bytes], bool]  # takes the rest of a file; whether it answered in full


class ArchiveServer:
    """Files by path, each with an ETag unless that is None, and a settable fault."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.files: dict[str, bytes] = {}
        self.etags: dict[str, str | None] = {}
        self.redirects: dict[str, str] = {}
        self.statuses: dict[str, int] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.ranges = True  # whether parts are sent
        self.heeds_if_range = True  # whether they are sent only of the file that was asked for
        self.fault: Fault | None = None

    def put(self, path: str, data: bytes, etag: str | None = '"1"') -> str:
        """Serve a file, and return its URL."""
        self.files[path], self.etags[path] = data, etag
        return f"{self.url}/{path}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.lstrip("/").partition("?")[0]
        self.requests.append((request.path, dict(request.headers)))
        if path in self.redirects or path in self.statuses:
            request.send_response(self.statuses.get(path, 302))
            request.send_header("Location", self.redirects.get(path, ""))
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        data, etag = self.files.get(path), self.etags.get(path)
        if data is None:
            request.send_error(404)
            return
        start = self._start(request, etag)
        if start >= len(data) and start:
            request.send_error(416)
            return
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        if etag is not None:
            request.send_header("ETag", etag)
        request.send_header("Content-Length", str(len(data) - start))
        request.end_headers()
        if self.fault is None or self.fault(request, data[start:]):
            request.wfile.write(data[start:])
        else:
            request.close_connection = True

    def _start(self, request: BaseHTTPRequestHandler, etag: str | None) -> int:
        asked = re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", ""))
        changed = self.heeds_if_range and request.headers.get("If-Range") != etag
        if asked is None or not self.ranges or changed:
            return 0
        return int(asked[1])


@contextmanager
def archive_server(certificate: Path | None = None, host: str = "127.0.0.1") -> Iterator[ArchiveServer]:
    """Serve files at an address of this host, with a certificate, beside which its key is, by HTTPS."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            server.answer(self)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    listening = ThreadingHTTPServer((host, 0), Handler)
    listening.daemon_threads = True
    server = ArchiveServer(f"http://{host}:{listening.server_port}")
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
        listening.socket = context.wrap_socket(listening.socket, server_side=True)
        server.url = f"https://localhost:{listening.server_port}"
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()


def cut_off_at(*ends: int) -> Fault:
    """Break off the first answers after this many bytes each."""
    left = list(ends)

    def fault(request: BaseHTTPRequestHandler, data: bytes) -> bool:
        if not left:
            return True
        request.wfile.write(data[: left.pop(0)])
        request.wfile.flush()
        return False

    return fault


def hold_until(released: threading.Event, begun: threading.Event, after: int) -> Fault:
    """Send some bytes, and the others once `released` is set."""

    def fault(request: BaseHTTPRequestHandler, data: bytes) -> bool:
        request.wfile.write(data[:after])
        request.wfile.flush()
        begun.set()
        released.wait(60)
        with suppress(OSError):
            request.wfile.write(data[after:])
        return False

    return fault


def files_below(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files, by path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
