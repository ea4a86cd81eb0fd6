"""The backend through `lmi serve`, with examples/hello as a GGUF file, beside llama-cpp-python's own computations."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema_rs
import llama_cpp
import numpy as np
import pytest

from llama_cpp_backend.engine import Engine, Sequence
from llama_cpp_backend.vocabulary import Vocabulary
from lmi.testing import ModelDirectory, PlainServe, PlainServer, plain_server
from tests.core.remote.archives.gguf_models import write_hello

PROPERTIES = """
option.rolling_batch=llama_cpp
option.n_threads=1
option.n_batch=8
option.max_rolling_batch_size=4
"""
PROMPT, QUESTION = "Once upon a time", [{"role": "user", "content": "Who are you?"}]
TOKENS = 12


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hello(tmp_path_factory.mktemp("gguf") / "hello.gguf")


@pytest.fixture(scope="module")
def server(gguf: Path) -> Iterator[PlainServer]:
    (gguf.parent / "serving.properties").write_text(PROPERTIES)
    with plain_server(gguf.parent) as server:
        yield server


@pytest.fixture(scope="module")
def direct(gguf: Path) -> llama_cpp.Llama:
    return llama_cpp.Llama(str(gguf), logits_all=True, n_threads=1, n_batch=8, flash_attn=True, verbose=False)


def complete(server: PlainServer, prompt: str = PROMPT, **parameters: Any) -> Any:
    """Answer by OpenAI's completions, which reach most parameters; greedy by default."""
    body = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0, **parameters}
    answer = server.post("/v1/completions", body)
    assert answer.status == 200, answer.body
    return answer.json()


def text_of(server: PlainServer, prompt: str = PROMPT, **parameters: Any) -> str:
    return str(complete(server, prompt, **parameters)["choices"][0]["text"])


def log_probs(direct: llama_cpp.Llama, prompt: list[int], generated: list[int]) -> Any:
    """Return the log probabilities after each of the tokens, computed with llama-cpp-python alone."""
    direct.reset()
    for ids in (prompt, *([token_id] for token_id in generated)):
        direct.eval(ids)
    ids = [*prompt, *generated]
    logits = np.array(direct.scores[: len(ids)], np.float64)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def vocabulary(server: PlainServer) -> Vocabulary:
    found = server.model.backend.tokenizer
    assert isinstance(found, Vocabulary)
    return found


OPENAI = {"max_tokens": TOKENS, "temperature": 0}
CHATS: dict[str, tuple[str, dict[str, Any], Callable[[Any], str]]] = {
    "openai": ("/v1/chat/completions", OPENAI, lambda body: body["choices"][0]["message"]["content"]),
    "ollama": (
        "/api/chat",
        {"stream": False, "options": {"num_predict": TOKENS, "temperature": 0}},
        lambda body: body["message"]["content"],
    ),
    "anthropic": ("/v1/messages", OPENAI, lambda body: body["content"][0]["text"]),
    "lmi": ("/invocations", OPENAI, lambda body: body["choices"][0]["message"]["content"]),
}
LMI = {"inputs": PROMPT, "parameters": {"max_new_tokens": TOKENS}}
PROMPTS: dict[str, tuple[str, dict[str, Any], Callable[[Any], str]]] = {
    "tgi": ("/generate", LMI, lambda body: body["generated_text"]),
    "lmi": ("/invocations", LMI, lambda body: body["generated_text"]),
    "triton": (
        "/v2/models/MODEL/generate",
        {"text_input": PROMPT, "max_tokens": TOKENS, "temperature": 0, "exclude_input_in_output": True},
        lambda body: body["text_output"],
    ),
    "ollama": (
        "/api/generate",
        {"prompt": PROMPT, "raw": True, "stream": False, "options": {"num_predict": TOKENS, "temperature": 0}},
        lambda body: body["response"],
    ),
}


@pytest.mark.parametrize("dialect", CHATS)
def test_chats_of_every_dialect(server: PlainServer, dialect: str) -> None:
    path, parameters, read = CHATS[dialect]
    answer = server.post(path, {"model": server.model.name, "messages": QUESTION, **parameters})
    assert answer.status == 200, answer.body
    body = {"input": QUESTION[0]["content"], "max_output_tokens": TOKENS, "temperature": 0}
    of_responses = server.post("/v1/responses", body).json()["output"][0]["content"][0]["text"]
    assert read(answer.json()) == of_responses != ""


@pytest.mark.parametrize("dialect", PROMPTS)
def test_prompts_of_every_dialect(server: PlainServer, direct: llama_cpp.Llama, dialect: str) -> None:
    path, body, read = PROMPTS[dialect]
    answer = server.post(path.replace("MODEL", server.model.name), {"model": server.model.name, **body})
    assert answer.status == 200, answer.body
    expected: Any = direct.create_completion(PROMPT, max_tokens=TOKENS, temperature=0)
    assert read(answer.json()) == expected["choices"][0]["text"] == text_of(server)


def test_streams(server: PlainServer) -> None:
    chat = {"messages": QUESTION, **OPENAI}
    whole = server.post("/v1/chat/completions", chat).json()["choices"][0]["message"]["content"]
    answer = server.post("/v1/chat/completions", {**chat, "stream": True})
    lines = [line.removeprefix(b"data: ") for line in answer.body.split(b"\n\n") if line]
    events = [json.loads(line) for line in lines[:-1]]
    assert lines[-1] == b"[DONE]"
    assert "".join(each["choices"][0]["delta"].get("content") or "" for each in events if each["choices"]) == whole
    assert len(events) > 3
    of_tgi = server.post("/generate_stream", LMI).events(b"data:")
    assert "".join(each["token"]["text"] for each in of_tgi) == of_tgi[-1]["generated_text"] == text_of(server)


def test_log_probs_are_those_of_llama_cpp(server: PlainServer, direct: llama_cpp.Llama) -> None:
    parameters = {"max_new_tokens": TOKENS, "details": True, "decoder_input_details": True, "top_n_tokens": 3}
    text = f"{PROMPT}, there was a brave fox named Mia. She lived"  # of several batches
    details = server.post("/generate", {"inputs": text, "parameters": parameters}).json()["details"]
    prompt, generated = details["prefill"], details["tokens"]
    ids = [each["id"] for each in [*prompt, *generated]]
    assert ids[: len(prompt)] == direct.tokenize(text.encode(), special=True)
    expected = log_probs(direct, ids[: len(prompt)], ids[len(prompt) :])
    found = [each["logprob"] for each in [*prompt[1:], *generated]]
    assert found == pytest.approx([expected[place, ids[place + 1]] for place in range(len(ids) - 1)], abs=1e-3)
    for place, top in enumerate(details["top_tokens"], start=len(prompt) - 1):
        best = np.argsort(-expected[place])[:3]
        assert [each["id"] for each in top] == best.tolist()
        assert [each["logprob"] for each in top] == pytest.approx(expected[place, best], abs=1e-3)


ENDS = {b'"': 4, b"}": 12, b"]": 12}  # biases, so that the answers end
AGE = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
SCHEMAS: dict[str, Any] = {
    "anything": True,
    "boolean": {"type": "boolean"},
    "number": {"type": "number"},
    "lengths": {"type": "string", "minLength": 2, "maxLength": 4},
    "list": {"type": "array", "items": {"type": ["integer", "null"]}, "minItems": 2, "maxItems": 3},
    "empty list": {"type": "array", "maxItems": 0},
    "names": {
        "type": "object",
        "properties": {'a"\\': {"const": [1.5, "é"]}, "b": {"enum": ["x", 1]}},
        "required": ["b"],
    },
    "others": {"additionalProperties": {"enum": ["x", 1], "type": "string"}},
    "none": {"type": "object", "additionalProperties": False},
    "references": {"anyOf": [{"$ref": "#/$defs/a~1b", "title": "Age"}, {"type": "null"}]},
}


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("temperature", [0, 1.5])
def test_schemas(server: PlainServer, name: str, temperature: float) -> None:
    schema = {"properties": {"it": SCHEMAS[name]}, "required": ["it"], "$defs": {"a/b": AGE}}
    ids = range(vocabulary(server).vocabulary_size)
    bias = {str(i): ENDS.get(vocabulary(server).token_bytes(i), 0) for i in ids}
    parameters: dict[str, Any] = {"temperature": temperature, "seed": 7, "max_tokens": 500, "logit_bias": bias}
    answer = complete(server, guided_json=schema, **parameters)["choices"][0]
    assert answer["finish_reason"] == "stop"
    jsonschema_rs.validate(schema, json.loads(answer["text"]))


@pytest.mark.parametrize("choice", ['say "space"', "cost\\$", "né\n", "^yes$", "<special>"])
def test_choices(server: PlainServer, choice: str) -> None:
    special = next(i for i in vocabulary(server).special_ids if vocabulary(server).text(i))
    choice = choice.replace("<special>", vocabulary(server).text(special))
    assert text_of(server, guided_choice=[choice], max_tokens=40) == choice
    assert text_of(server, guided_choice=[f"{choice}!", choice], max_tokens=40) in (f"{choice}!", choice)


def test_bytes_that_are_no_text(server: PlainServer) -> None:
    halves = [b"\xed", b"\xac"]  # of a surrogate
    bias = {
        str(i): 60 for i in range(vocabulary(server).vocabulary_size) if vocabulary(server).token_bytes(i) in halves
    }
    assert len(bias) == 2
    schema = {"type": "string", "minLength": 3, "maxLength": 3}
    text = json.loads(text_of(server, guided_json=schema, logit_bias=bias, max_tokens=20))
    assert (len(text), text.count("\ufffd")) == (3, 0)


def test_json_schema_of_a_chat(server: PlainServer) -> None:
    schema = {
        "type": "object",
        "properties": {"age": {"type": "integer"}, "ok": {"enum": ["a", "b"]}},
        "required": ["age", "ok"],
    }
    form = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}
    body = {"messages": QUESTION, "temperature": 0, "max_tokens": 60, "response_format": form}
    choice = server.post("/v1/chat/completions", body).json()["choices"][0]
    found = json.loads(choice["message"]["content"])
    assert (choice["finish_reason"], found.keys(), found["ok"] in "ab") == ("stop", {"age", "ok"}, True)


@pytest.mark.parametrize(
    ("guide", "message"),
    [
        (
            {"guided_grammar": 'root ::= "a"'},
            "`guided_grammar` must be omitted: the llama_cpp backend does not support",
        ),
        ({"guided_regex": "a]"}, "`guided_regex` must be omitted: the llama_cpp backend does not support"),
        ({"guided_json": {"$ref": "https://example.com/schema"}}, "`guided_json` has the `$ref`"),
        ({"guided_json": {"$ref": "#"}}, "refers to itself"),
        ({"guided_json": {"type": "array", "items": {"$ref": "#"}}}, "refers to itself"),
        ({"guided_json": {"type": "integer", "minimum": 5}}, "has `minimum`, which this backend cannot enforce"),
        ({"guided_json": {"type": "string", "pattern": "a]"}}, "has `pattern`, which this backend cannot enforce"),
        ({"guided_json": {"anyOf": [{}], "type": "string"}}, "has `anyOf`, which this backend cannot enforce"),
        ({"guided_json": {"required": ["a"]}}, 'has "a" in `required`, but not in `properties`'),
        ({"guided_json": {"enum": [1], "minLength": 2}}, "beside `enum` and `const` no keyword but `type`"),
        ({"guided_json": {"enum": [1], "type": "string"}}, "has an `enum` without a value of its `type`"),
        ({"guided_json": {"type": "text"}}, "has an invalid value of `type`"),
        ({"guided_json": {"items": False}}, "has false where this backend needs a schema"),
        ({"guided_json": {"minLength": 2, "maxLength": 1}}, "has a maximum below its minimum"),
        ({"guided_json": {"items": {"maxLength": 1999}}}, "has more than 2000 rules and repetitions"),
        ({"guided_choice": [str(number) for number in range(300)]}, "`guided_choice` has more than 256 alternatives"),
        ({"guided_choice": ["a"], "ignore_eos": True, "min_tokens": 9}, "no token that the request allows"),
        ({"allowed_token_ids": [10**6]}, "1000000 is not a token of the model"),
        ({"structural_tag": '{"structures": [], "triggers": []}'}, ""),
    ],
)
def test_parameters_that_are_refused(server: PlainServer, guide: dict[str, Any], message: str) -> None:
    answer = server.post("/v1/completions", {"prompt": PROMPT, **guide})
    assert answer.status == 400
    assert message in answer.json()["error"]["message"]


def test_sampling(server: PlainServer) -> None:
    sampled: dict[str, Any] = {"temperature": 1.2, "top_p": 0.95, "top_k": 40, "min_p": 0.01, "repetition_penalty": 1.1}
    first, again, other = (text_of(server, seed=seed, **sampled) for seed in (1, 1, 2))
    assert first == again != other
    greedy = complete(server, logprobs=0)["choices"][0]["logprobs"]["tokens"]
    barred = server.post("/tokenize", {"prompt": greedy[0], "add_special_tokens": False}).json()["tokens"][0]
    assert not text_of(server, logit_bias={str(barred): -100}).startswith(greedy[0])
    several = complete(server, n=3, temperature=1, seed=5)["choices"]
    assert len({each["text"] for each in several}) == 3


def test_stops(server: PlainServer) -> None:
    text = text_of(server)
    word = text.split()[2]
    choice = complete(server, stop=[word])["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == (text[: text.index(word)], "stop")
    answer = server.post("/v1/chat/completions", {"messages": QUESTION, **OPENAI, "max_tokens": 200}).json()
    assert answer["choices"][0]["finish_reason"] == "stop"  # the end that the model has learnt
    assert answer["usage"]["completion_tokens"] < 200


def test_streams_at_once_are_the_same_as_alone(server: PlainServer) -> None:
    prompts = [f"{PROMPT} there was a {noun}" for noun in ("cat", "dog", "fox", "king", "tree", "ship", "boy", "girl")]
    alone = [text_of(server, prompt, max_tokens=40) for prompt in prompts]
    with ThreadPoolExecutor(len(prompts)) as pool:  # twice as many as run at a time
        together = list(pool.map(lambda prompt: text_of(server, prompt, max_tokens=40), prompts))
    assert together == alone
    assert len(set(alone)) > 2


def test_client_that_leaves(server: PlainServer, monkeypatch: pytest.MonkeyPatch) -> None:
    left, ended = threading.Event(), list[Sequence]()
    step, remove = Engine.step, Engine.remove

    def wait_before_step(engine: Engine) -> None:
        if any(sequence.generated >= 3 for sequence in engine.running):
            assert left.wait(30)
        step(engine)

    def note_and_remove(engine: Engine, sequences: list[Sequence]) -> None:
        ended.extend(sequences)
        remove(engine, sequences)
        left.set()

    monkeypatch.setattr(Engine, "step", wait_before_step)
    monkeypatch.setattr(Engine, "remove", note_and_remove)
    body = {"inputs": PROMPT, "stream": True, "parameters": {"max_new_tokens": 200, "ignore_eos_token": True}}
    pieces = server.pieces("/invocations", body)
    assert next(pieces)
    pieces.close()  # type: ignore[attr-defined]  # a generator
    assert left.wait(30)
    assert text_of(server)
    assert ended[0].generated <= 4
    engine: Engine = getattr(server.model.backend, "engine")  # noqa: B009 -- its class is not known here
    memory = llama_cpp.llama_get_memory(engine.context)
    assert {llama_cpp.llama_memory_seq_pos_max(memory, slot) for slot in range(4)} == {-1}
    assert (engine.figures.running, engine.figures.waiting, engine.figures.cache_usage) == (0, 0, 0)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_thread_that_ends(gguf: Path, server: PlainServer, monkeypatch: pytest.MonkeyPatch) -> None:
    added, add = threading.Semaphore(0), Engine.add

    def add_and_note(engine: Engine, sequences: list[Sequence]) -> None:
        add(engine, sequences)
        added.release()

    def fail(engine: Engine) -> None:
        assert all(added.acquire(timeout=30) for _ in range(2))  # the thread has not read of the second request
        raise MemoryError

    with plain_server(gguf.parent) as failing, ThreadPoolExecutor(2) as pool:
        monkeypatch.setattr(Engine, "add", add_and_note)
        monkeypatch.setattr(Engine, "step", fail)
        body = {"prompt": PROMPT, "max_tokens": 4}
        answers = list(pool.map(lambda _: failing.post("/v1/completions", body), range(2)))
        assert [answer.status for answer in answers] == [500, 500]
        assert b"thread has ended" in answers[0].body
        monkeypatch.undo()
        assert failing.post("/v1/completions", body).status == 503


def test_context_that_is_exceeded(server: PlainServer) -> None:
    length = server.model.backend.max_length
    answer = server.post("/v1/completions", {"prompt": "a b c d e f g h " * length, "max_tokens": 1})
    assert (answer.status, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    prompt = server.post("/tokenize", {"prompt": PROMPT}).json()["tokens"]
    repeated = (prompt * length)[: length - 5]
    answer = server.post("/v1/completions", {"prompt": repeated, "max_tokens": 5, "temperature": 0, "ignore_eos": True})
    assert answer.json()["usage"]["total_tokens"] == length
    answer = server.post("/v1/completions", {"prompt": repeated, "max_tokens": 6, "temperature": 0})
    assert answer.status == 400


def test_directory_without_a_file(serve: PlainServe, model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": PROPERTIES})
    command = [str(Path(sys.executable).with_name("lmi")), "check", str(directory)]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert checked.returncode != 0
    assert "needs one GGUF file" in " ".join((checked.stdout + checked.stderr).split())


def test_file_that_is_damaged(serve: PlainServe, model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": PROPERTIES, "model.gguf": "GGUF and nothing else"})
    with pytest.raises(Exception, match=r"llama\.cpp cannot load"):
        serve(directory)
