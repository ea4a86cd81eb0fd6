"""Answers of LMI's asynchronous mode: what the functions of its newest containers wrote for the same tokens.

The containers' faults are left out: they give no finish reason in whole answers, count one token too many in streams,
and join the texts of several sequences.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from lmi_core.texts.word_tokenizer import WordTokenizer
from lmi_plugins.backends.scripted import Script
from tests.conftest import Answer, RunningServer

SCRIPTS = Path(__file__).parents[2] / "model_scripts"
SAID = "Deep Learning is a field."
FORMATTERS = (
    "from djl_python.input_parser import input_formatter\nfrom djl_python.output_formatter import output_formatter\n"
)
SHORT_QUESTION = """
@input_formatter
def read(decoded_payload, tokenizer=None, **kwargs):
    if "inputs" in decoded_payload:
        decoded_payload["inputs"] = "Q: " + decoded_payload["inputs"]
        decoded_payload["parameters"] = {"max_new_tokens": 3, "return_full_text": True}
    return decoded_payload
"""
BROKEN = """
@{kind}_formatter
def broken(given, **kwargs):
    raise ValueError("broken")
"""


def _script(name: str) -> str:
    return (SCRIPTS / name / "model.py").read_text()


MODELS: Mapping[str, Mapping[str, str]] = {  # files of a model directory
    "plain": {},
    "tools": {},
    "adapters": {"adapters/french/model.py": ""},
    "engine_object": {"model.py": _script("engine_object")},
    "documented": {"model.py": _script("documented_engine_object")},
    "input_formatter": {"model.py": FORMATTERS + SHORT_QUESTION},
    "failing_output": {"model.py": FORMATTERS + BROKEN.format(kind="output")},
    "failing_input": {"model.py": FORMATTERS + BROKEN.format(kind="input")},
    "adapter_formatter": {"adapters/french/model.py": _script("engine_object")},
}


def read_facts() -> list[dict[str, Any]]:
    facts: list[dict[str, Any]] = orjson.loads(Path(__file__).with_name("async_answers.json").read_bytes())
    return facts


async def ask(server: RunningServer, fact: Mapping[str, Any]) -> Answer:
    """Send a fact's request to a server that says what the fact says, with token ids from 0 on."""
    server.scripted.tokenizer = WordTokenizer()
    server.scripted.max_length = 2048
    said = [Script(fact.get("said", SAID), error=fact.get("error")) for _ in range(2)]
    server.scripted.enqueue(*said)
    answer = await server.post("/invocations", fact["body"], headers=fact.get("headers"))
    left = 2 - sum(script.closed.is_set() for script in said)
    for _ in range(left):  # of those that the request did not take
        await server.post("/invocations", {"inputs": "x"})
    return answer


def difference(fact: Mapping[str, Any], answer: Answer) -> str | None:
    """Return how an answer differs from the fact; None if it does not."""
    if (answer.status, answer.content_type) != (fact["status"], fact["content_type"]):
        return f"{answer.status} {answer.content_type}: {answer.body[:200]!r}"
    if answer.status != 200:
        error = answer.json()
        return None if error["code"] == answer.status and error["error"] else f"{error}"
    found: Any = [orjson.loads(line) for line in answer.body.splitlines() if line]
    if "together" in fact:
        return None if contains(together(found), fact["together"]) else f"{together(found)}"
    equal = found == fact["lines"] if is_lmi(fact["lines"]) else contains(found, fact["lines"])
    return None if equal else f"{found}"


def is_lmi(lines: list[Any]) -> bool:
    """Return whether the lines are of LMI's own schema, in which null members count too."""
    return "generated_text" in lines[0] and "choices" not in lines[0]


def contains(found: Any, wanted: Any) -> bool:
    """Return whether a value has every member of another one; null counts as absent."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            value is None or contains(found.get(name), value) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(contains, found, wanted))
    return bool(found == wanted)


def together(chunks: list[Any]) -> Any:
    """Return what the chunks of a stream say together, however the stream was cut into chunks."""
    whole: dict[str, Any] = {"object": chunks[0].get("object"), "choices": []}
    for chunk in chunks:
        whole["choices"] = _accumulated(whole["choices"], chunk.get("choices", []))
        whole |= {name: chunk[name] for name in ("model", "usage", "error") if chunk.get(name)}
    return whole


def _accumulated(old: Any, new: Any) -> Any:
    if old is None or new is None:
        return new if old is None else old
    if isinstance(new, dict):
        return {
            **old,
            **{name: value if name == "index" else _accumulated(old.get(name), value) for name, value in new.items()},
        }
    if isinstance(new, list) and new and isinstance(new[0], dict) and "index" in new[0]:
        by_index = {each["index"]: each for each in old}
        for each in new:
            by_index[each["index"]] = _accumulated(by_index.get(each["index"], {}), each)
        return [by_index[index] for index in sorted(by_index)]
    return old + new if isinstance(new, str | list) else new
