"""The LMI inference schema over a real socket: bodies, content types and statuses as the specification has them."""

import asyncio
import gzip
import re

import orjson
import pytest
from aiohttp import ClientConnectionResetError, ClientError, web

from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.lmi.test_front_end_errors import front_end

TEXT = "Deep Learning is a really cool field."
WORDS = ["Deep", " Learning", " is", " a", " really", " cool", " field."]
PROMPT = "What is Deep Learning?"
CHAT = {"messages": [{"role": "user", "content": PROMPT}]}


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


async def serve_with(serve: Serve, model_dir: ModelDirectory, properties: str) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED + properties}))


@pytest.mark.parametrize("path", ["/invocations", "/predictions/model", "/predictions/model/1"])
async def test_whole_answer(server: RunningServer, path: str) -> None:
    answer = await server.post(path, {"inputs": PROMPT})
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert answer.body == b'{"generated_text": "Deep Learning is a really cool field."}'
    assert answer.headers["Content-Length"] == str(len(answer.body))


async def test_details(server: RunningServer) -> None:
    answer = await server.post("/invocations", {"inputs": PROMPT, "parameters": {"details": True}})
    details = answer.json()["details"]
    assert [token["text"] for token in details.pop("tokens")] == WORDS
    assert details == {"finish_reason": "eos_token", "generated_tokens": 7, "inputs": PROMPT}


async def test_finish_reason_length(server: RunningServer) -> None:
    answer = await server.post("/invocations", {"inputs": PROMPT, "parameters": {"details": True, "max_new_tokens": 2}})
    assert answer.json()["generated_text"] == "Deep Learning"
    assert answer.json()["details"]["finish_reason"] == "length"


async def test_finish_reason_stop_sequence(server: RunningServer) -> None:
    parameters = {"details": True, "stop_sequences": ["g is a"]}
    answer = await server.post("/invocations", {"inputs": PROMPT, "parameters": parameters})
    assert answer.json()["generated_text"] == "Deep Learnin"
    assert answer.json()["details"]["finish_reason"] == "stop_sequence"


async def test_stop_sequences_by_tgi_s_name(server: RunningServer) -> None:
    answer = await server.post("/invocations", {"inputs": PROMPT, "parameters": {"stop": [" is"]}})
    assert answer.json() == {"generated_text": "Deep Learning"}
    answer = await server.post("/invocations", {"inputs": PROMPT, "parameters": {"stop": " is"}})
    assert answer.json() == {"generated_text": "Deep Learning"}
    refused = await server.post("/invocations", {"inputs": PROMPT, "parameters": {"stop": 3}})
    assert refused.json()["error"] == "`stop` must be a valid list. Given: 3"


async def test_prefill(server: RunningServer) -> None:
    parameters = {"details": True, "decoder_input_details": True}
    answer = await server.post("/invocations", {"inputs": PROMPT, "parameters": parameters})
    prefill = answer.json()["details"]["prefill"]
    assert "".join(token["text"] for token in prefill) == PROMPT
    assert [token["log_prob"] for token in prefill] == [None, -0.5, -0.5, -0.5]


PARTS_OF_DETAILS = {"decoder_input_details": True, "logprobs": 2, "prompt_logprobs": 2}


async def test_parts_of_details_without_details(server: RunningServer) -> None:
    body = {"inputs": PROMPT, "parameters": PARTS_OF_DETAILS | {"max_new_tokens": 2}}
    assert (await server.post("/invocations", body)).json() == {"generated_text": "Deep Learning"}
    first, last = (await server.post("/invocations", body | {"stream": True})).json_lines()
    assert (last["generated_text"], "details" in last) == ("Deep Learning", False)
    for line in (first, last):
        assert len(line["token"]["top_tokens"]) == 2


async def test_parts_of_details_with_details(server: RunningServer) -> None:
    body = {"inputs": PROMPT, "parameters": PARTS_OF_DETAILS | {"max_new_tokens": 2, "details": True}}
    details = (await server.post("/invocations", body)).json()["details"]
    assert [len(token["top_tokens"]) for token in details["tokens"]] == [2, 2]
    assert [len(token.get("top_tokens", ())) for token in details["prefill"]] == [0, 2, 2, 2]
    *_, last = (await server.post("/invocations", body | {"stream": True})).json_lines()
    assert last["details"]["prefill"] == details["prefill"]


async def test_best_of_sequences(server: RunningServer) -> None:
    answer = await server.post("/invocations", {"inputs": PROMPT, "parameters": {"details": True, "n": 2}})
    best, (other,) = answer.json()["details"], answer.json()["details"]["best_of_sequences"]
    assert best["tokens"][0]["log_prob"] > other["tokens"][0]["log_prob"]
    assert other["generated_text"] == TEXT
    assert set(other) == {"finish_reason", "generated_tokens", "tokens", "generated_text"}


async def test_best_of_one_answer_shows_all_others(server: RunningServer) -> None:
    parameters = {"details": True, "n": 1, "best_of": 3}
    answer = await server.post("/invocations", {"inputs": PROMPT, "parameters": parameters})
    assert len(answer.json()["details"]["best_of_sequences"]) == 2


async def test_a_body_that_names_another_model(server: RunningServer) -> None:
    for path in ("/invocations", "/predictions/model"):
        answer = await server.post(path, {"inputs": PROMPT, "model": "mudel"})
        assert (answer.status, answer.json()["error"]) == (404, "`model` must be model, or be omitted. Given: 'mudel'")


async def test_return_full_text(server: RunningServer) -> None:
    answer = await server.post("/invocations", {"inputs": PROMPT, "parameters": {"return_full_text": True}})
    assert answer.json() == {"generated_text": PROMPT + TEXT}


async def test_stream_of_json_lines(server: RunningServer) -> None:
    answer = await server.post("/invocations", {"inputs": PROMPT, "stream": True})
    assert (answer.status, answer.content_type) == (200, "application/jsonlines")
    *lines, last = answer.json_lines()
    assert [line["token"]["text"] for line in lines] == WORDS[:-1]
    assert all(set(line) == {"token"} and set(line["token"]) == {"id", "text", "log_prob"} for line in lines)
    assert set(last) == {"token", "generated_text"}
    assert last["generated_text"] == TEXT


async def test_details_come_with_the_last_line(server: RunningServer) -> None:
    answer = await server.post("/invocations", {"inputs": PROMPT, "stream": True, "parameters": {"details": True}})
    *lines, last = answer.json_lines()
    assert all(set(line) == {"token"} for line in lines)
    assert last["details"] == {"finish_reason": "eos_token", "generated_tokens": 7, "inputs": PROMPT}


async def test_each_line_is_sent_when_its_token_is_there(server: RunningServer) -> None:
    script = Script("one two", hold=True)
    server.scripted.enqueue(script)
    async with server.client.post("/invocations", json={"inputs": PROMPT, "stream": True}) as response:
        first, second = await response.content.readline(), await response.content.readline()
        assert (b'"one"' in first, b'" two"' in second) == (True, True)
        assert not script.closed.is_set()


async def test_each_line_is_a_write_of_its_own(server: RunningServer) -> None:
    body = {"inputs": PROMPT, "stream": True, "parameters": {"stop_sequences": [" is not"]}}  # " is" is held back
    async with server.client.post("/invocations", json=body) as response:
        writes = [data async for data, complete in response.content.iter_chunks() if complete]
    assert [write.count(b"\n") for write in writes] == [1] * len(WORDS)


async def test_output_formatter_sse(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_with(serve, model_dir, "option.output_formatter=sse\n")
    answer = await server.post("/invocations", {"inputs": PROMPT, "stream": True})
    assert answer.content_type == "text/event-stream"
    assert [event["token"]["text"] for event in answer.events(b"data: ")] == WORDS


async def test_output_formatter_jsonlines_streams_without_being_asked(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_with(serve, model_dir, "option.output_formatter=jsonlines\n")
    answer = await server.post("/invocations", {"inputs": PROMPT})
    assert answer.content_type == "application/jsonlines"
    assert len(answer.json_lines()) == len(WORDS)


async def test_enable_streaming(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_with(serve, model_dir, "option.enable_streaming=true\n")
    assert (await server.post("/invocations", {"inputs": PROMPT})).content_type == "application/jsonlines"


async def test_output_formatter_none(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_with(serve, model_dir, "option.output_formatter=none\n")
    answer = await server.post("/invocations", {"inputs": PROMPT, "parameters": {"return_full_text": True}})
    assert (answer.content_type, answer.body) == ("text/plain; charset=utf-8", (PROMPT + TEXT).encode())


async def test_tgi_compat_whole_answer_is_an_array(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_with(serve, model_dir, "option.tgi_compat=true\n")
    answer = await server.post("/invocations", {"inputs": PROMPT, "parameters": {"details": True}})
    (only,) = answer.json()
    assert answer.content_type == "application/json"
    assert only["generated_text"] == TEXT
    assert only["details"].items() >= {"finish_reason": "eos_token", "generated_tokens": 7, "inputs": PROMPT}.items()
    assert set(only["details"]["tokens"][0]) == {"id", "text", "log_prob", "logprob", "special"}


async def test_tgi_compat_streams_server_sent_events(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_with(serve, model_dir, "option.tgi_compat=true\n")
    answer = await server.post("/invocations", {"inputs": PROMPT, "stream": True})
    assert answer.content_type == "text/event-stream"
    *events, last = answer.events(b"data: ")
    assert [event["index"] for event in [*events, last]] == [1, 2, 3, 4, 5, 6, 7]
    assert all(event["generated_text"] is None and event["details"] is None for event in events)
    assert last["generated_text"] == TEXT
    assert last["details"].items() >= {"finish_reason": "eos_token", "generated_tokens": 7, "inputs": PROMPT}.items()


ERROR_DETAILS = {"finish_reason": "error", "generated_tokens": None, "inputs": None}
ERROR_TOKEN = {"id": -1, "text": "", "log_prob": -1, "special_token": True}
BAD = {"inputs": PROMPT, "parameters": {"temperature": -1}}
BAD_MESSAGE = "`temperature` must be greater than or equal to 0. Given: -1"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "the body is not valid JSON: unexpected end of data: line 1 column 2 (char 1)"),
        (b'{"inputs": "\xff"}', "the body is not valid JSON: str is not valid UTF-8"),
        (b"", "the body is not valid JSON"),
        (b"[1]", "the body must be a JSON object. Given: [1]"),
        (b"{}", "`inputs` is required"),
        (b'{"inputs": ""}', "`inputs` must have at least 1 character. Given: ''"),
        (b'{"inputs": 5}', "`inputs` must be a valid string. Given: 5"),
        (
            b'{"inputs": ["a"]}',
            "`inputs` must be a string; lists of strings need option.rolling_batch=disable, and no option.async_mode. "
            "Given: ['a']",
        ),
        (b'{"inputs": "a", "stream": "yes"}', "`stream` must be a valid boolean. Given: 'yes'"),
        (b'{"inputs": "a", "parameters": 1}', "`parameters` must be a valid dictionary. Given: 1"),
        (b'{"input": "a"}', "`inputs` is required. Did you send it as `input`?"),
    ],
)
async def test_invalid_payload(server: RunningServer, body: bytes, message: str) -> None:
    answer = await server.post("/invocations", data=body)
    assert (answer.status, answer.content_type) == (424, "application/json")
    assert answer.json().keys() == {"error", "code"}
    assert answer.json()["code"] == 424
    assert answer.json()["error"].startswith(message)


async def test_bad_parameter(server: RunningServer) -> None:
    answer = await server.post("/invocations", BAD)
    assert (answer.status, answer.content_type) == (424, "application/json")
    assert answer.json() == {"generated_text": "", "details": {**ERROR_DETAILS, "tokens": None}, "error": BAD_MESSAGE}


async def test_bad_parameter_of_a_stream(server: RunningServer) -> None:
    answer = await server.post("/invocations", BAD | {"stream": True})
    assert (answer.status, answer.content_type) == (424, "application/jsonlines")
    expected = {"token": ERROR_TOKEN, "generated_text": "", "details": ERROR_DETAILS, "error": BAD_MESSAGE}
    assert answer.json_lines() == [expected]


async def test_failure_before_the_first_token(server: RunningServer) -> None:
    server.scripted.enqueue(Script("", error="the engine fell over"))
    answer = await server.post("/invocations", {"inputs": PROMPT, "stream": True})
    assert answer.status == 500
    assert answer.json_lines()[0]["error"] == "the engine fell over"


async def test_failure_within_a_stream(server: RunningServer) -> None:
    server.scripted.enqueue(Script("one two", error="the engine fell over"))
    answer = await server.post("/invocations", {"inputs": PROMPT, "stream": True})
    assert answer.status == 200
    *lines, last = answer.json_lines()
    assert [line["token"]["text"] for line in lines] == ["one", " two"]
    assert last == {
        "token": ERROR_TOKEN,
        "generated_text": "",
        "details": ERROR_DETAILS,
        "error": "the engine fell over",
    }


async def test_failure_within_a_whole_answer(server: RunningServer) -> None:
    server.scripted.enqueue(Script("one two", error="the engine fell over"))
    answer = await server.post("/invocations", {"inputs": PROMPT})
    assert answer.status == 500
    assert answer.json()["details"] == {**ERROR_DETAILS, "tokens": None}


async def test_prompt_longer_than_the_context(server: RunningServer) -> None:
    answer = await server.post("/invocations", {"inputs": "word " * 3000})
    assert answer.status == 424
    assert answer.json()["error"] == "`inputs` must be at most 2047 tokens long. Given: 3001"


async def test_unknown_model(server: RunningServer) -> None:
    answer = await server.post("/predictions/mudel", {"inputs": PROMPT})
    assert answer.status == 404
    message = "model `mudel` is not served. Did you mean `model`? Served: model"
    assert answer.json() == front_end(message, 404, "ModelNotFoundException")


async def test_body_over_the_limit(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_with(serve, model_dir, "max_request_size=1000\n")
    answer = await server.post("/invocations", {"inputs": "x" * 1000})
    assert answer.status == 413
    message = "the body must be at most 1000 bytes (max_request_size)"
    assert answer.json() == front_end(message, 413, "BadRequestException")


async def test_full_queue(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_with(serve, model_dir, "job_queue_size=1\noption.max_rolling_batch_size=1\n")
    scripts = [Script("one", hold=True), Script("one", hold=True)]
    server.scripted.enqueue(*scripts)
    waiting = [asyncio.create_task(server.post("/invocations", {"inputs": PROMPT})) for _ in scripts]
    await asyncio.gather(*(script.started.wait() for script in scripts))
    answer = await server.post("/invocations", data=b"not even read")
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    assert answer.json()["error"] == "model model has 2 requests in its queue, which is full"
    for task in waiting:
        task.cancel()
    await asyncio.gather(*(script.closed.wait() for script in scripts))
    assert (await server.post("/invocations", {"inputs": PROMPT})).status == 200


async def test_client_that_leaves(server: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for stream in (True, False):
        script = Script("one two", hold=True)
        server.scripted.enqueue(script)
        request = asyncio.create_task(server.post("/invocations", {"inputs": PROMPT, "stream": stream}))
        await script.started.wait()
        request.cancel()
        await script.closed.wait()
    assert server.dispatcher.in_flight == 0
    assert sum("/invocations ended: the client disconnected" in line for line in caplog.messages) == 2


async def test_client_that_has_left_when_it_is_written_to(
    server: RunningServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def write(response: web.StreamResponse, data: bytes) -> None:
        raise ClientConnectionResetError("Cannot write to closing transport")

    caplog.set_level("INFO")
    monkeypatch.setattr(web.StreamResponse, "write", write)
    with pytest.raises(ClientError):
        await server.post("/invocations", {"inputs": PROMPT, "stream": True})
    assert sum("/invocations ended: the client disconnected" in line for line in caplog.messages) == 1
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_request_id_is_echoed_or_made(server: RunningServer) -> None:
    answer = await server.post("/invocations", {"inputs": PROMPT}, headers={"X-Request-Id": "mine"})
    assert answer.headers["x-request-id"] == "mine"
    assert len((await server.post("/invocations", {"inputs": PROMPT})).headers["x-request-id"]) == 32


@pytest.mark.parametrize("given", ["gr\u00fcn", "a\tb"])
async def test_request_id_that_cannot_be_sent_back(server: RunningServer, given: str) -> None:
    answer = await server.post("/v1/chat/completions", CHAT, headers={"X-Request-Id": given})
    assert answer.status == 200
    assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])
    assert answer.json()["id"] == f"chatcmpl-{answer.headers['x-request-id']}"


async def test_header_that_is_no_text(server: RunningServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port)
    header = b"model_name: \xe4\r\n"
    writer.write(b"POST /invocations HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + header + b"\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 404 ")
    assert orjson.loads(body)["error"] == r"model `\udce4` is not served. Served: model"


async def test_compressed_body(server: RunningServer) -> None:
    compressed = {"Content-Encoding": "gzip"}
    body = b'{"inputs": "What is Deep Learning?"}'
    assert (await server.post("/invocations", data=gzip.compress(body), headers=compressed)).json() == {
        "generated_text": TEXT
    }
    answer = await server.post("/invocations", data=body, headers=compressed)
    assert (answer.status, answer.json()["code"]) == (424, 424)
    assert answer.json()["error"] == "the body cannot be read as its Content-Encoding, gzip: incorrect header check"


async def test_log_of_a_path_is_one_line(server: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    await server.post("/predictions/a%0Ab", {"inputs": PROMPT}, headers={"X-Request-Id": "mine"})
    assert "request mine failed: model_not_found: model `a b` is not served. Served: model" in caplog.messages
    assert any(line.startswith("request mine: /predictions/a%0Ab 404 in ") for line in caplog.messages)


async def test_model_store(serve: Serve, model_dir: ModelDirectory) -> None:
    one = model_dir({"serving.properties": SCRIPTED + "option.scripted_text=one\n"}, "store/one")
    model_dir({"serving.properties": SCRIPTED + "option.scripted_text=two\n"}, "store/two")
    server = await serve(one.parent)
    by_path = await server.post("/predictions/one", {"inputs": PROMPT})
    by_header = await server.post("/invocations", {"inputs": PROMPT}, headers={"X-Amzn-SageMaker-Target-Model": "two"})
    by_body = await server.post("/invocations", {"inputs": PROMPT, "model": "two"})
    unnamed = await server.post("/invocations", {"inputs": PROMPT})
    assert [answer.json() for answer in (by_path, by_header, by_body)] == [
        {"generated_text": "one"},
        {"generated_text": "two"},
        {"generated_text": "two"},
    ]
    assert (unnamed.status, unnamed.json()["error"]) == (404, "several models are served; name one of: one, two")
