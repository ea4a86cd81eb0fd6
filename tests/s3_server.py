"""moto's S3 server on a local port, with faults on demand."""

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

KEYS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}

Environ = dict[str, Any]
Body = Iterable[bytes]
Fault = Callable[[Environ, Body], Body]  # takes a GET request's environ and the answer's body


class S3Server:
    """An S3 server with one bucket, `models`, and settable faults."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.environment = {**KEYS, "AWS_ENDPOINT_URL": url}
        self.gets: list[str] = []  # the path and range of each requested object
        self.fault: Fault | None = None
        self.listed: Callable[[Body], Body] = _as_it_is  # takes the bodies of the other answers
        self.refusal: tuple[str, bytes] | None = None  # status and body of every answer, if set
        self.denied: bytes | None = None  # the body with which every object is refused, if set
        self.client: S3Client = boto3.client(
            "s3",
            endpoint_url=url,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
            region_name="us-east-1",
            config=Config(retries={"total_max_attempts": 1}),
        )

    def put(self, folder: str, files: dict[str, bytes]) -> str:
        """Store the files in a folder of the bucket, and return its URL."""
        for path, data in files.items():
            self.client.put_object(Bucket="models", Key=f"{folder}/{path}", Body=data)
        return f"s3://models/{folder}/"

    def reset(self) -> None:
        self.fault = self.refusal = self.denied = None
        self.listed = _as_it_is
        self.gets.clear()

    def answer(self, application: Any, environ: Environ, start: Any) -> Body:
        refusal = self.refusal
        is_object = environ["REQUEST_METHOD"] == "GET" and environ["PATH_INFO"].count("/") > 1
        if self.denied is not None and is_object:
            refusal = "403 Forbidden", self.denied
        if refusal is not None:
            start(refusal[0], [("Content-Type", "application/xml"), ("Content-Length", str(len(refusal[1])))])
            return [refusal[1]]
        body: Body = application(environ, start)
        if not is_object:
            return self.listed(body)
        self.gets.append(f"{environ['PATH_INFO']} {environ.get('HTTP_RANGE')}")
        return self.fault(environ, body) if self.fault is not None else body


def _as_it_is(body: Body) -> Body:
    return body


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def s3_server() -> Iterator[S3Server]:
    application = DomainDispatcherApplication(create_backend_app)

    def answer(environ: Environ, start: Any) -> Body:
        return server.answer(application, environ, start)

    listening = make_server("127.0.0.1", 0, answer, threaded=True, request_handler=_Quiet)
    server = S3Server(f"http://127.0.0.1:{listening.server_port}")
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        server.client.create_bucket(Bucket="models")
        yield server
    finally:
        server.client.close()
        listening.shutdown()
        listening.server_close()
        thread.join()


def range_start(environ: Environ) -> int:
    """Return the index of the first requested byte."""
    found = re.fullmatch(r"bytes=(\d+)-\d*", environ["HTTP_RANGE"])
    assert found is not None
    return int(found[1])
