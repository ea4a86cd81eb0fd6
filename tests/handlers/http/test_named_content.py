"""Queries, forms and multipart bodies as the input of a model function, over a real socket."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from lmi_core.errors import InvalidPayload
from lmi_core.handler import Call
from lmi_core.script.formatters.input_formatters import call_properties
from lmi_core.script.function.pool import device_id
from lmi_handlers.http.named_content import MAX_FIELDS, named_content
from tests.conftest import RunningServer, running_server

SCRIPT = Path(__file__).parents[2] / "model_scripts" / "showing_handler"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
MULTIPART = {"Content-Type": "multipart/form-data; boundary=xyz"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    """Yield a server of a model function that returns its input."""
    directory = tmp_path_factory.mktemp("store") / "model"
    shutil.copytree(SCRIPT, directory)
    (directory / "serving.properties").write_text("max_request_size=10000\noption.task=own\n")
    async with running_server(directory) as running:
        yield running


def part(name: str, data: bytes, more: str = "") -> bytes:
    head = f'--xyz\r\nContent-Disposition: form-data; name="{name}"\r\n{more}\r\n'
    return head.encode() + data + b"\r\n"


END = b"--xyz--\r\n"


@pytest.mark.asyncio(loop_scope="module")
async def test_query(server: RunningServer) -> None:
    answer = await server.post("/invocations?tongue=french&tag=a&tag=b%20c&empty=", {"inputs": "x"})
    assert answer.json()["content"] == [
        ["tongue", "french"],
        ["tag", "a"],
        ["tag", "b c"],
        ["empty", ""],
        ["data", '{"inputs": "x"}'],
    ]
    assert answer.json()["whole"] == '{"inputs": "x"}'


@pytest.mark.asyncio(loop_scope="module")
async def test_form(server: RunningServer) -> None:
    body = b"text=a+b%26c&name=%C3%BC&empty=&text=again"
    answer = await server.post("/predictions/model?lang=de", data=body, headers=FORM)
    expected = [["lang", "de"], ["text", "a b&c"], ["name", "ü"], ["empty", ""], ["text", "again"]]
    assert (answer.status, answer.json()["content"]) == (200, expected)


@pytest.mark.asyncio(loop_scope="module")
async def test_bytes_in_a_form_stay_what_they_are(server: RunningServer) -> None:
    answer = await server.post("/invocations", data=b"raw=%ff%00", headers=FORM)
    assert answer.json()["content"] == [["raw", "\\xff\x00"]]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "body", [b'{"inputs": "a=b&c"}', b' [{"a": 1}]', b'"a=b"', b"hello & goodbye", b"\x89PNG=\xff"]
)
async def test_what_curl_calls_a_form_and_is_none(server: RunningServer, body: bytes) -> None:
    answer = await server.post("/invocations", data=body, headers=FORM)
    assert answer.json()["content"] == [["data", body.decode(errors="backslashreplace")]]


@pytest.mark.asyncio(loop_scope="module")
async def test_multipart_as_a_client_sends_it(server: RunningServer) -> None:
    form = aiohttp.FormData()
    form.add_field("text", "hällo")
    form.add_field("image", b"\x00\r\n--xyz\xff", filename="a.png", content_type="image/png")
    async with server.client.post("/invocations?size=2", data=form) as response:
        answer = await response.json()
    assert answer["content"] == [["size", "2"], ["text", "hällo"], ["image", "\x00\r\n--xyz\\xff"]]
    assert answer["properties"]["Content-Type"].startswith("multipart/form-data; boundary=")


@pytest.mark.asyncio(loop_scope="module")
async def test_part_with_a_name_that_is_no_utf_8(server: RunningServer) -> None:
    body = part("a", b"1").replace(b'"a"', b'"a\xff"') + END
    answer = await server.post("/invocations", data=body, headers=MULTIPART)
    assert answer.json()["content"] == [["a\ufffd", "1"]]


@pytest.mark.asyncio(loop_scope="module")
async def test_nothing_that_a_client_sends_is_the_call_that_loads_the_model(server: RunningServer) -> None:
    for body, headers in ((b"", FORM), (END, MULTIPART), (b"", {"Content-Type": "text/plain"})):
        answer = await server.post("/invocations", data=body, headers=headers)
        assert answer.json()["content"] == [["data", ""]]


TWICE = part("a", b"1") + part("b", b"2")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("body", "headers", "message"),
    [
        (TWICE, MULTIPART, "the multipart/form-data body cannot be read: "),
        (TWICE[:-10] + END, MULTIPART, "the multipart/form-data body cannot be read: "),
        (b"no parts", MULTIPART, "cannot be read: Could not find starting boundary"),
        (TWICE, {"Content-Type": "multipart/form-data"}, "cannot be read: boundary missed"),
        (
            b"--xyz\r\n\r\n1\r\n" + END,
            MULTIPART,
            "part 1 has no name: give it a `Content-Disposition: form-data; name=",
        ),
        (b'--xyz\r\nContent-Disposition: form-data; name="a\r\n\r\n1\r\n' + END, MULTIPART, "cannot be read: "),
        (
            part("a", b"MQ==", "Content-Transfer-Encoding: base64\r\n") + END,
            MULTIPART,
            "part a has the Content-Transfer",
        ),
        (part("a", b"MQ==", "Content-Encoding: gzip\r\n") + END, MULTIPART, "part a has the Content-Encoding gzip"),
        (
            part("a", b"", "Content-Type: multipart/mixed; boundary=in\r\n") + END,
            MULTIPART,
            "itself a multipart message",
        ),
        (b"&".join([b"a=1"] * (MAX_FIELDS + 1)), FORM, f"must have at most {MAX_FIELDS} fields"),
    ],
)
async def test_what_cannot_be_read_is_refused(
    server: RunningServer, body: bytes, headers: dict[str, str], message: str
) -> None:
    answer = await server.post("/invocations", data=body, headers=headers)
    assert answer.status == 424
    assert message in answer.json()["error"]
    assert answer.json()["code"] == 424


@pytest.mark.asyncio(loop_scope="module")
async def test_size_of_the_request_is_bounded(server: RunningServer) -> None:
    answer = await server.post("/invocations", data=part("a", b"x" * 10000) + END, headers=MULTIPART)
    assert (answer.status, "max_request_size" in answer.json()["error"]) == (413, True)


async def test_many_tiny_parts_are_refused_and_hold_up_nobody() -> None:
    body = part("a", b"") * 20_000 + END
    call = Call({}, MULTIPART, body, "r")
    reading = asyncio.create_task(named_content(call))
    turns = 0
    while not reading.done():
        turns += 1
        await asyncio.sleep(0)
    with pytest.raises(InvalidPayload, match=f"at most {MAX_FIELDS} fields"):
        reading.result()
    assert turns > MAX_FIELDS // 2


@pytest.mark.asyncio(loop_scope="module")
async def test_custom_attributes_are_properties(server: RunningServer) -> None:
    header = "X-Amzn-SageMaker-Custom-Attributes"
    headers = {header: "lang=de; trace = a=b ;nothing;x-request-id=mine", "x-request-id": "r1"}
    properties = (await server.post("/invocations", {}, headers=headers)).json()["properties"]
    assert (properties["lang"], properties["trace"], properties["x-request-id"]) == ("de", "a=b", "r1")
    assert properties[header] == headers[header]
    assert properties["device_id"] == device_id(0)


@pytest.mark.parametrize(
    ("identifier", "attributes", "expected"),
    [
        ("french", "", "french"),
        ("", "trace=1,adapter=french", "french"),
        ("french", "adapter=french", "french"),
        ("french", "adapter=german", "french;german"),
        ("", "trace=1", None),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_adapter_that_headers_name_is_a_property(
    server: RunningServer, identifier: str, attributes: str, expected: str | None
) -> None:
    headers = {"X-Amzn-SageMaker-Adapter-Identifier": identifier, "X-Amzn-SageMaker-Custom-Attributes": attributes}
    properties = (await server.post("/invocations", {}, headers=headers)).json()["properties"]
    assert properties.get("adapter") == expected


@pytest.mark.asyncio(loop_scope="module")
async def test_a_client_cannot_make_a_batch_of_its_request(server: RunningServer) -> None:
    answer = await server.post("/invocations", {"a": 1}, headers={"batch_size": "3"})
    assert answer.json()["content"] == [["data", '{"a": 1}']]


def test_header_that_is_no_utf_8() -> None:
    assert call_properties(Call({}, {"X-Name": "a\udcff"}, b"", "r"))["X-Name"] == "a\ufffd"


async def test_batch_has_the_names_of_each_request(tmp_path: Path) -> None:
    shutil.copytree(SCRIPT, tmp_path / "model")
    (tmp_path / "model" / "serving.properties").write_text("batch_size=2\nmax_batch_delay=60000\n")
    async with running_server(tmp_path / "model") as running:
        one = running.post("/invocations?n=1", data=b"a=1", headers=FORM)
        two = running.post("/invocations?n=2", data=part("file", b"2") + END, headers=MULTIPART)
        answers = [answer.json()["content"] for answer in await asyncio.gather(one, two)]
    assert answers == [[["n", "1"], ["a", "1"]], [["n", "2"], ["file", "2"]]]
