from typing import Any

import pytest

from lmi_core.script.formatters.engine_response import as_object, plain, texts_in


@pytest.mark.parametrize("name", ["delta", "message"])
def test_what_a_chat_message_lacks_reads_as_empty(name: str) -> None:
    choice = getattr(as_object({name: {}}), name)
    assert (choice.role, choice.content, list(choice.tool_calls)) == (None, None, [])


def test_what_was_only_read_is_not_written() -> None:
    chunk: dict[str, Any] = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    response = as_object(chunk)
    assert response.choices[0].delta.content is None
    assert plain(response) == chunk
    response.choices[0].delta.content = "more"
    assert plain(response)["choices"][0]["delta"] == {"content": "more"}


def test_the_kind_of_a_choice_is_told_by_what_it_has() -> None:
    choice = as_object({"choices": [{"text": "Deep"}]}).choices[0]
    assert [name for name in ("delta", "message", "content", "text") if hasattr(choice, name)] == ["text"]


@pytest.mark.parametrize(
    ("path", "data", "texts"),
    [
        (("text",), {"text": "Deep"}, ["Deep"]),
        (("text",), {"text": ["Deep", ""]}, ["Deep", ""]),
        (("token", "text"), {"token": {"text": ""}}, [""]),
        (("token", "text"), {"token": None, "error": "x"}, []),
        (("token", "text"), {}, []),
        (("blocks", "text"), {"blocks": [{"text": "Deep"}, {"call": {}}, {"text": ""}]}, ["Deep", ""]),
        (("text",), {"text": None}, []),
        ((), {"text": "Deep"}, []),
    ],
)
def test_texts_in_an_answer(path: tuple[str, ...], data: dict[str, Any], texts: list[str]) -> None:
    assert texts_in(data, path) == texts
