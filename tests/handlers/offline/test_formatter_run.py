"""`lmi.run_formatter`: an output formatter without a model and without a server."""

from typing import Any

import pytest

import lmi


@lmi.output_formatter
def shout(output):  # type: ignore[no-untyped-def]  # as people write them
    return output.delta.upper()


@lmi.output_formatter(content_type="text/csv", headers={"X-Schema": "1"})
def rows(output: lmi.GenerationOutput) -> str:
    return f"{output.delta.strip()}\n"


def of_lmi(request_output: Any) -> str:
    return f"[{request_output.sequences[0].get_next_token()[0].text}]"


def sign(response_data: dict[str, Any]) -> dict[str, Any]:
    return response_data | {"signed": True}


@lmi.output_formatter
class Counting(lmi.OutputFormatter):
    content_type = "text/plain"

    def format(self, output: lmi.GenerationOutput) -> bytes:
        return b"%d " % output.usage.generated_tokens

    def error(self, error: lmi.LmiError) -> bytes:
        return b""


def test_own_contract() -> None:
    run = lmi.run_formatter(shout, "one two")
    assert run.description == (
        "custom output formatter: shout, called as (output: GenerationOutput) -> str | bytes | dict",
    )
    assert run.warnings == ()
    assert (run.whole.text, list(run.stream.pieces)) == ("ONE TWO", ["ONE", " TWO"])
    assert (run.stream.status, run.stream.content_type) == (200, "text/plain; charset=utf-8")


def test_content_type_and_headers() -> None:
    sent = lmi.run_formatter(rows, "one two").whole
    assert (sent.content_type, sent.headers["X-Schema"], sent.text) == ("text/csv", "1", "one\ntwo\n")


def test_contracts_of_lmi() -> None:
    assert list(lmi.run_formatter(of_lmi, "one two").stream.pieces) == ["[one]", "[ two]"]
    assert lmi.run_formatter(sign, "one two").whole.text == '{"generated_text":"one two","signed":true}'
    run = lmi.run_formatter(lambda data: data.get("generated_text"), "one two")
    assert "is ambiguous: `data` has no annotation; the function uses `get`" in run.warnings[0]


def test_class() -> None:
    assert list(lmi.run_formatter(Counting, "one two").stream.pieces) == ["1 ", "2 "]


def test_request() -> None:
    run = lmi.run_formatter(shout, "one two", max_new_tokens=1)
    assert run.whole.text == "ONE"
    chat = lmi.run_formatter(sign, "one two", route="/v1/chat/completions", prompt="Say.", max_tokens=1)
    assert '"signed":true' in chat.whole.text
    assert '"finish_reason":"length"' in chat.whole.text


def test_formatter_that_raises() -> None:
    run = lmi.run_formatter(lmi.output_formatter(lambda output: output.nothing), "one two")
    assert run.whole.status == run.stream.status == 424
    assert "has no attribute 'nothing'" in run.whole.text


def test_no_formatter() -> None:
    with pytest.raises(lmi.ConfigurationError, match="must take one argument"):
        lmi.run_formatter(lambda: "", "one two")
