"""Guides are verified beside the event loop, once, and followed by the library that can do what they say."""

import asyncio
import json
import threading
from typing import Any

import pytest

from lmi_core.payloads.written_json import WrittenJson
from lmi_plugins.torch_engine.messages.requests import Guide
from lmi_plugins.vllm_engine.library import SamplingParams, xgrammar_lacks
from lmi_plugins.vllm_engine.requests.guides import AUTO, by_guidance
from tests.plugins.vllm_server import VllmServer

MULTIPLES = {"type": "integer", "multipleOf": 977, "minimum": 1, "maximum": 99999}
DIGITS = {"type": "string", "pattern": "^[0-9]+$"}


@pytest.mark.asyncio(loop_scope="session")
async def test_guides_are_verified_once_and_not_on_the_event_loop(
    vllm: VllmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    validate = SamplingParams._validate_structured_outputs

    def noted(self: SamplingParams, *given: Any) -> None:
        if self.structured_outputs is not None:
            threads.append(threading.current_thread())
        validate(self, *given)

    monkeypatch.setattr(SamplingParams, "_validate_structured_outputs", noted)
    answers = await asyncio.gather(
        vllm.ask("Hello", guided_regex="[ab]{4}", max_new_tokens=9),
        vllm.ask("Hello", guided_choice=["yes", "no"], n=2, do_sample=True, max_new_tokens=9),
        vllm.ask("Hello", max_new_tokens=2),
    )
    assert len(answers[0]["generated_text"]) == 4
    assert answers[1]["generated_text"] in ("yes", "no")
    assert len(threads) == 3  # one for each sequence
    assert threading.current_thread() not in threads


@pytest.mark.asyncio(loop_scope="session")
async def test_a_long_guide_is_written_once_and_not_on_the_event_loop(
    vllm: VllmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    write = WrittenJson.__init__

    def noted(self: WrittenJson, value: dict[str, Any]) -> None:
        threads.append(threading.current_thread().name)
        write(self, value)

    monkeypatch.setattr(WrittenJson, "__init__", noted)
    schema = {"type": "object", "properties": {"a": {"enum": ["yes", "no"], "description": "a" * 30_000}}}
    answer = await vllm.ask("Hello", guided_json=schema, n=2, do_sample=True, max_new_tokens=40)
    assert answer["generated_text"].startswith("{")  # perhaps cut off after many spaces
    assert [name.partition("_")[0] for name in threads] == ["lmi-reading"]


@pytest.mark.asyncio(loop_scope="session")
async def test_each_guide_is_followed_by_the_library_that_can(vllm: VllmServer) -> None:
    """Xgrammar, to which vLLM would give them all after the first, leaves out `multipleOf`."""
    assert (await vllm.ask("Hello", guided_regex="[ab]{3}", max_new_tokens=9))["generated_text"].strip("ab") == ""
    for seed in range(3):
        answer = await vllm.ask("Hello", guided_json=MULTIPLES, do_sample=True, seed=seed, max_new_tokens=20)
        assert int(answer["generated_text"]) % 977 == 0
    text = json.loads((await vllm.ask("Hello", guided_json={"enum": ["a", "b"]}, max_new_tokens=20))["generated_text"])
    assert text in ("a", "b")


@pytest.mark.parametrize(
    ("guide", "library", "expected"),
    [
        (Guide("json", json.dumps(MULTIPLES)), AUTO, True),
        (Guide("json", json.dumps({"properties": {"a": {"items": MULTIPLES}}})), AUTO, True),
        (Guide("json", json.dumps(MULTIPLES)), "xgrammar", False),
        (Guide("json", json.dumps(DIGITS)), AUTO, False),
        (Guide("json", json.dumps(DIGITS)), "guidance", True),
        (Guide("json", "true"), AUTO, False),
        (Guide("json", "{"), AUTO, False),
        (Guide("json", "[" * 100_000), AUTO, False),
        (Guide("regex", "[ab]"), AUTO, False),
        (Guide("regex", "[ab]"), "guidance", True),
    ],
    ids=["multiples", "nested", "xgrammar", "pattern", "guidance", "true", "no JSON", "deep", "regex", "regex too"],
)
def test_which_library_is_tried(guide: Guide, library: str, expected: bool) -> None:
    assert by_guidance(guide, library) is expected


def test_vllm_tells_what_xgrammar_lacks() -> None:
    assert [xgrammar_lacks(MULTIPLES), xgrammar_lacks(DIGITS)] == [True, False]
