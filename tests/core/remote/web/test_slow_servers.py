"""Web servers that stop sending, or trickle, are given up."""

import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import ModuleType

import pytest

from lmi_core.remote.archives.unpacking import Limits
from lmi_core.remote.errors import Unreachable
from lmi_core.remote.report import Report
from lmi_core.remote.web import download, requests
from lmi_core.remote.web.download import TRIES, Download
from tests.archive_server import ArchiveServer
from tests.core.remote.archives.packing import zip_of

SECONDS = 0.2  # in place of thirty, and of a minute
LIMIT = 60.0
ARCHIVE = zip_of({"model.safetensors": bytes(range(256)) * 4000})


def trickles(request: BaseHTTPRequestHandler, data: bytes) -> bool:
    """Send a byte now and then, without end."""
    for byte in data:
        try:
            request.wfile.write(bytes([byte]))
        except OSError:  # the client has given up
            return False
        time.sleep(SECONDS / 10)
    return True


def stops(request: BaseHTTPRequestHandler, data: bytes) -> bool:
    """Send nothing until the client has given up."""
    request.connection.recv(1)
    return False


async def run(url: str, folder: Path) -> None:
    begun = time.monotonic()
    asked = Download(url, folder / "partial", Limits(), Report(lambda _: None))
    try:
        await asked.run(await asked.open())
    finally:
        assert time.monotonic() - begun < LIMIT


BROKEN_OFF = r"the connection was interrupted \({}\): start again to resume"
# A busy machine may not even send the head of an answer in time.
SILENT = f"{BROKEN_OFF.format('Timeout on reading data from socket')}|the server did not respond for 0 seconds"


@pytest.mark.parametrize(
    ("fault", "module", "name", "message"),
    [
        (trickles, download, "RATE_SECONDS", BROKEN_OFF.format(r"received \d+ bytes in 0 seconds")),
        (stops, requests, "SECONDS", SILENT),
    ],
    ids=["trickles", "stops"],
)
async def test_it_is_given_up_after_a_few_tries(
    web: ArchiveServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[BaseHTTPRequestHandler, bytes], bool],
    module: ModuleType,
    name: str,
    message: str,
) -> None:
    url = web.put("mine.zip", ARCHIVE)
    web.fault = fault
    with monkeypatch.context() as hurried:
        hurried.setattr(module, name, SECONDS)
        with pytest.raises(Unreachable, match=message):
            await run(url, tmp_path)
    assert len(web.requests) <= TRIES * TRIES
    web.fault = None
    monkeypatch.undo()
    await run(url, tmp_path)
    assert (tmp_path / "partial" / "archive").read_bytes() == ARCHIVE  # begun where it was given up


async def test_a_slow_server_that_is_quick_enough_is_waited_for(
    web: ArchiveServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "RATE_SECONDS", SECONDS)
    monkeypatch.setattr(download, "MIN_BYTES", 1)
    url = web.put("mine.zip", zip_of({"a": b"1"}))
    web.fault = trickles
    await run(url, tmp_path)
    assert len(web.requests) == 1
