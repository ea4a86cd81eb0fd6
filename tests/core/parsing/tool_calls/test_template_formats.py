import pytest

from lmi_core.parsing.search import unmarked
from lmi_core.parsing.tool_calls.formats import FORMATS
from lmi_core.parsing.tool_calls.template_formats import SIGNS, template_format
from tests.core.parsing.tool_calls.written_calls import WRITTEN

UNMARKED = {"llama3_json", "llama4_pythonic", "pythonic", "xlam"}  # a template says in words how these are written
ALIKE = {"ernie45": "hermes", "granite-20b-fc": None, "gigachat3": None, "minicpm5": None}
SEVERAL = {"jamba", "hunyuan_a13b", "minimax"}  # write the same, and which of them it is does not matter


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("return a json object within <tool_call></tool_call> XML tags", "hermes"),
        ('Respond in the format {"name": function name, "parameters": dictionary}', "llama3_json"),
        ("<tool_call>\n<function=example>\n</function>\n</tool_call>", None),
        ("<tool_call>\n<function=f>\n<parameter=a>\n</parameter>\n</function>\n</tool_call>", "qwen3_coder"),
        ("{{ messages[0].content }}", None),
    ],
)
def test_template(template: str, name: str | None) -> None:
    assert template_format(template) == name


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - UNMARKED - SEVERAL))
def test_what_a_model_writes_is_in_its_template(name: str) -> None:
    text = next(text for each, text, _, calls in WRITTEN if each == name and len(calls) == 2)
    assert template_format(unmarked(text)) == ALIKE.get(name, name)


def test_signs_are_of_known_formats() -> None:
    assert {name for name, _ in SIGNS} <= FORMATS.keys()
