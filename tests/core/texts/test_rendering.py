from pathlib import Path
from typing import Any

import pytest

from lmi_core.generation.chat import Chat
from lmi_core.texts.chat_template import render

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": [{"type": "text", "text": "What is <b>this</b>?\tSay."}]},
    {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, "é"]}}}]},
    {"role": "tool", "content": "{}"},
    {"role": "user", "content": "More"},
]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
# What the templates of models are made of.
ORDINARY = (Path(__file__).parent / "ordinary.jinja").read_text().split("{# next #}\n")


def by_transformers(*args: Any, **kwargs: Any) -> str:
    from transformers.utils.chat_template_utils import render_jinja_template

    rendered: Any = render_jinja_template(*args, **kwargs)  # the texts, and which tokens are answers'
    return str(rendered[0][0])


@pytest.mark.parametrize("template", ORDINARY)
def test_texts_are_those_of_transformers(template: str) -> None:
    names = {"bos_token": "<s>", "eos_token": "</s>"}
    expected = by_transformers([MESSAGES], TOOLS, None, template, add_generation_prompt=True, **names)
    for of_client in (False, True):
        assert render(Chat(MESSAGES, TOOLS, template_of_client=of_client), template, names) == expected
    assert len(expected) > 3


@pytest.mark.parametrize("form", ["m.content", "m.content | trim"])
@pytest.mark.parametrize("content", ["I think ", "so", [{"type": "text", "text": "parts "}]])
def test_continued_texts_are_those_of_transformers(form: str, content: Any) -> None:
    if not isinstance(content, str):
        form = form.replace("m.content", "(m.content[0].text if m.content is not string else m.content)")
    template = "{% for m in messages %}{{ " + form + " }}</s>{% endfor %}"
    messages = [{"role": "user", "content": "Do you?"}, {"role": "assistant", "content": content}]
    expected = by_transformers([messages], None, None, template, continue_final_message=True)
    assert render(Chat(messages, None, {}, False, True), template, {}) == expected
    assert messages[-1]["content"] is content


def test_a_long_chat_has_time() -> None:
    messages = [{"role": "user", "content": "word " * 100} for _ in range(5000)]
    template = "{% for m in messages %}{{ '<' ~ m.role ~ '>' + m.content | trim }}{% endfor %}"
    assert len(render(Chat(messages), template, {})) > 2_000_000
