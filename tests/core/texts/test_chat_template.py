from pathlib import Path

import pytest

from lmi_core.errors import ConfigurationError, InvalidPayload
from lmi_core.texts.chat_template import find_chat_template, read_chat_template, takes_parts
from lmi_plugins.backends.scripted import CHAT_TEMPLATE, WordTokenizer

TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


def test_none(tmp_path: Path) -> None:
    assert read_chat_template(None, tmp_path) is None


def test_template_itself(tmp_path: Path) -> None:
    assert read_chat_template(TEMPLATE, tmp_path) == TEMPLATE


def test_file(tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text("Grüße {{ messages }}", encoding="utf-8")
    assert read_chat_template("chat.jinja", tmp_path) == "Grüße {{ messages }}"


def test_the_directory_s_own_file(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    assert read_chat_template(None, tmp_path) == TEMPLATE
    assert read_chat_template("{{ messages }}", tmp_path) == "{{ messages }}"
    (tmp_path / "tokenizer_config.json").write_text("{}")
    assert read_chat_template(None, tmp_path) is None, "the tokenizer has it"


@pytest.mark.parametrize("option", ["missing.jinja", ".", "latin.jinja"])
def test_no_template(tmp_path: Path, option: str) -> None:
    (tmp_path / "latin.jinja").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match=r"option\.chat_template must be a Jinja template, or a file with one"):
        read_chat_template(option, tmp_path)


def test_configured_template_goes_before_the_models_own() -> None:
    tokenizer = WordTokenizer()
    assert find_chat_template(TEMPLATE, tokenizer, with_tools=False, field="chat") == TEMPLATE
    assert find_chat_template(None, tokenizer, with_tools=False, field="chat") == CHAT_TEMPLATE
    tokenizer.template = None
    with pytest.raises(InvalidPayload, match=r"^`chat` need .*: set option\.chat_template"):
        find_chat_template(None, tokenizer, with_tools=False, field="chat")


@pytest.mark.parametrize(
    "loop",
    [
        "{% for part in message['content'] %}",
        "{%- for part in message.content -%}",
        "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}",
        "{%- for item in content %}",
    ],
)
def test_takes_parts(loop: str) -> None:
    assert takes_parts("{% for message in messages %}" + loop + "{% endfor %}{% endfor %}")


def test_takes_texts() -> None:
    assert not takes_parts(TEMPLATE)
    assert not takes_parts(CHAT_TEMPLATE)
