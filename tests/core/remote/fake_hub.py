"""A local hub, with the few routes that huggingface_hub uses for a model."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeHub:
    """A hub with one model, `org/tiny`, whose files can be changed, and whose requests are recorded."""

    files: dict[str, bytes]
    commit: str = COMMIT
    url: str = ""
    requests: list[str] = field(default_factory=list)
    gated: bool = False
    token: str | None = None  # None: the model is public
    hold: threading.Event = field(default_factory=threading.Event)  # files are sent once it is set
    holding: int = 0  # number of files held back now

    def listed(self) -> list[dict[str, object]]:
        return [
            {
                "type": "file",
                "path": name,
                "rfilename": name,
                "size": len(data),
                "oid": _etag(data),
                "blobId": _etag(data),
            }
            for name, data in self.files.items()
        ]


def _etag(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        if self.hub.token is not None and self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            self._send(401, b"{}", {"X-Error-Code": "GatedRepo" if self.hub.gated else "RepoNotFound"}, with_body)
        elif path in ("/api/models/org/tiny", *(f"/api/models/org/tiny/revision/{name}" for name in self._revisions())):
            info = {"id": "org/tiny", "modelId": "org/tiny", "sha": self.hub.commit, "siblings": self.hub.listed()}
            self._send(200, json.dumps(info).encode(), {}, with_body)
        elif path == f"/api/models/org/tiny/tree/{self.hub.commit}":
            self._send(200, json.dumps(self.hub.listed()).encode(), {}, with_body)
        elif path.startswith(f"/org/tiny/resolve/{self.hub.commit}/"):
            self._send_file(path.split("/", 5)[5], with_body)
        elif path.startswith("/api/models/org/tiny/revision/"):
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"}, with_body)
        else:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"}, with_body)

    def _revisions(self) -> tuple[str, ...]:
        return ("main", self.hub.commit)

    def _send_file(self, name: str, with_body: bool) -> None:
        data = self.hub.files.get(name)
        if data is None:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"}, with_body)
            return
        if with_body:
            self.hub.holding += 1
            self.hub.hold.wait(60)
            self.hub.holding -= 1
        self._send(200, data, {"ETag": f'"{_etag(data)}"', "X-Repo-Commit": self.hub.commit}, with_body)

    def _send(self, status: int, body: bytes, headers: dict[str, str], with_body: bool) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextmanager
def fake_hub(files: dict[str, bytes]) -> Iterator[FakeHub]:
    hub = FakeHub(files)
    hub.hold.set()
    handler = type("Handler", (_Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        hub.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield hub
        finally:
            hub.hold.set()
            server.shutdown()
            thread.join()
