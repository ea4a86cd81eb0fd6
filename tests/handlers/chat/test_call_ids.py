"""Ids of past tool calls, which requests may leave out."""

from typing import Any

import pytest

from lmi_handlers.chat.generation import with_call_ids
from lmi_handlers.chat.messages import Message

KIMI = "<|tool_call_begin|><|tool_call_argument_begin|>"


def calls(*names: str, ids: tuple[str | None, ...] = ()) -> dict[str, Any]:
    given = ids or (None,) * len(names)
    written = [{"id": call_id, "function": {"name": name}} for name, call_id in zip(names, given, strict=True)]
    return {"role": "assistant", "tool_calls": written}


def result(**members: Any) -> dict[str, Any]:
    return {"role": "tool", "content": "", **members}


def ids(template: str, *messages: dict[str, Any]) -> tuple[list[str | None], list[str | None]]:
    """Return the ids of the calls and those of the results."""
    written = with_call_ids([Message.model_validate(message) for message in messages], template)
    of_calls = [call.id for message in written for call in message.tool_calls or ()]
    return of_calls, [getattr(each, "tool_call_id", None) for each in written if each.role == "tool"]


def test_ids_are_made_and_found_again() -> None:
    found = ids("", calls("a", "b"), result(), result(), calls("a"), result())
    assert found == (["call00000", "call00001", "call00002"],) * 2


def test_results_by_the_name_of_their_function() -> None:
    assert ids("", calls("a", "b"), result(name="b"), result(name="a"))[1] == ["call00001", "call00000"]


def test_ids_that_the_template_demands() -> None:
    assert ids(KIMI, calls("a", "b"), result())[0] == ["functions.a:0", "functions.b:1"]


def test_given_ids_are_kept() -> None:
    found = ids("", calls("a", "b", ids=("x", None)), result(tool_call_id="x"), result())
    assert found == (["x", "call00001"], ["x", "call00001"])


@pytest.mark.parametrize("given", [{}, {"tool_call_id": "x"}, {"name": "c"}])
def test_results_without_a_call_are_left_alone(given: dict[str, Any]) -> None:
    assert ids("", result(**given))[1] == [given.get("tool_call_id")]
