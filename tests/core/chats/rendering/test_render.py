import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from lmi_core.calls.haste import NeedsTimeError, in_haste
from lmi_core.chats.chat import Chat
from lmi_core.chats.rendering import budget
from lmi_core.chats.rendering import render as render_module
from lmi_core.chats.rendering.budget import TemplateTooCostlyError
from lmi_core.chats.rendering.compiling import SHORT_PROGRAM, compile_program
from lmi_core.chats.rendering.environment import BoundedEnvironment
from lmi_core.chats.rendering.render import CACHED_CHARACTERS, MAX_TEMPLATE, compiled, render
from tests.processor_time import processor_time

SECONDS = 0.2  # enough to tell an end that comes by itself
ITSELF = 10.0  # in which such an end comes on a slow machine too; without it there is none
COMPILED = 0.1  # seconds of processor time, in which the code of the longest program is read
TIMES = 2
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
    assert render(Chat(MESSAGES, TOOLS), template, names) == expected
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


NESTED = (
    "{% set ns = namespace(a=[], b=[]) %}{% for i in range(64) %}"
    "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}"
)
WALKS = ("== ns.b", "| tojson", "| string", "| pprint", "in [ns.b]", "| join('x')")


def grown(first: str, then: str, shown: str = "") -> str:
    """Return a template whose `ns.t` grows from step to step."""
    steps = "{% for i in range(99999) %}{% set ns.t = " + then + " %}{% endfor %}"
    return "{% set ns = namespace(t=" + first + ") %}" + steps + shown


ENDLESS = [
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) if false %}{% endfor %}{% endfor %}",
    "{% macro twice(n) %}{% if n %}{{ twice(n - 1) }}{{ twice(n - 1) }}{% endif %}{% endmacro %}{{ twice(100) }}",
    "{% for a in [1, 1] recursive %}{% if loop.depth < 60 %}{{ loop([1, 1]) }}{% endif %}{% endfor %}",
    grown("'x'", "ns.t ~ ns.t"),
    grown("'x'", "ns.t + ns.t"),
    grown("'&'", "ns.t | escape"),
    "{% set ns = namespace(t='x') %}{% for i in range(99) %}{% set ns.t %}{{ ns.t }}{{ ns.t }}{% endset %}{% endfor %}",
    grown("[]", "[ns.t, ns.t]", "{{ ns.t }}"),
    grown("[]", "ns.t + ['x' * 999999]"),
    grown("[1]", "ns.t + ns.t"),
    grown("3", "ns.t * ns.t"),
    "{% for i in range(99999) %}{{ 'x' * 9999999 }}{% endfor %}",
    "{% set s = 'x' * 9999999 %}" + grown("[]", "ns.t + [s[1:]]"),
    *(NESTED + "{{ ns.a " + each + " }}" for each in WALKS),
    "{{ 'x' * 10**10 }}",
    "{{ [1] * 10**10 }}",
    "{{ 10 ** (10 ** 10) }}",
    "{{ 'x' | center(10**10) }}",
    "{{ 'x'.ljust(10**10) }}",
    "{{ '%10000000000d' % 1 }}",
    "{{ '%0*d' % (10**10, 1) }}",
    "{{ '%.9999999999f' % 1.5 }}",
    "{{ '%10000000000d' | format(1) }}",
    "{{ '{:10000000000}'.format(1) }}",
    "{{ '{:{w[0]}}'.format(1, w=[10**10]) }}",
    "{{ '\\t'.expandtabs(10**10) }}",
    "{{ 'x' | indent(10**10, first=true) }}",
    "{{ ('x' * 9999) | replace('x', 'x' * 99999) }}",
    "{{ ('x' * 9999).replace('', 'x' * 99999) }}",
    "{{ ('x' * 9999) | join('x' * 99999) }}",
    "{{ ('x' * 99999).join('x' * 9999) }}",
    "{{ ('x' * 9999).translate({120: 'x' * 99999}) }}",
    "{{ ('x ' * 9999) | wordwrap(1, wrapstring='x' * 99999) }}",
    "{{ [[1]] | tojson(indent=10**10) }}",
    "{{ [1] | batch(10**10, 'x') | list }}",
    "{{ ('x' * 9999999).split('x') }}",
    "{{ range(99999) | map('list') | list | length }}{{ lipsum(10**9) }}",
    "{{ strftime_now('%9999999999d') }}",
    "{# x #}" * (MAX_TEMPLATE // 7 + 1),
    "{{ ([[1] * 1000] * 9999) | sum(start=[]) | length }}",
    "{% for i in range(99999) %}{{ ([[1]] * 200000) | sum(start=[]) | length }}{% endfor %}",
    "{{ [[1], 2] | sum(start=[]) }}",
    "{{ ('x' * 8000000).rfind('xy' + 'x' * 8000) }}",
    "{{ ('x' * 8000000).rsplit('xy' + 'x' * 8000) }}",
    "{{ ('x' * 4000000) | trim('y' * 4000000 + 'x') }}",
    "{{ ('x' * 8000000) | title }}{{ ('x ' * 4000000) | wordcount }}",
    "{{ ('yx' * 90000) | list | sort }}",
    "{{ ('yx' * 400000) | map('upper') | sort }}",
    "{{ strftime_now('%A' * 4000000) }}",
    "{{ a" + " == a" * (MAX_TEMPLATE // 5 - 2) + " }}" + "{% if a %}" * 200 + "{% endif %}" * 200,
]  # fmt: skip


@pytest.mark.parametrize("template", ENDLESS)
def test_endless_templates_end(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_SECONDS", SECONDS)
    with (
        processor_time() as taken,
        pytest.raises((TemplateTooCostlyError, TypeError, ValueError, RecursionError)) as raised,
    ):
        render(Chat(MESSAGES), template, {})
    assert taken.seconds < ITSELF + SECONDS
    if raised.type in (TypeError, ValueError):
        assert "lmi" not in str(raised.value)


LONG = {
    "prints": "{{a}}" * (MAX_TEMPLATE // 5),
    "comparisons": "{{a" + "==a" * (MAX_TEMPLATE // 3 - 5) + "}}",
    "items": "{{{" + "1:1," * (MAX_TEMPLATE // 4 - 5) + "}}}",
}


@pytest.mark.parametrize("name", LONG)
def test_long_programs_are_compiled_elsewhere(name: str) -> None:
    """Python's compiler, which would hold all threads for up to half a second, takes no time of this process."""
    program = BoundedEnvironment().compile(LONG[name], raw=True)
    took = []
    for _ in range(TIMES):
        with processor_time() as taken:
            compile_program(program, "<template>")
        took.append(taken.seconds)
    assert min(took) < COMPILED, took


def test_long_programs_are_what_short_ones_are() -> None:
    text = (
        "{% macro f(x) %}<{{ x }}>{% endmacro %}{% for m in messages %}{{ f(m.role) }}{% endfor %}{# "
        + "x" * 999
        + " #}"
    )
    many = text * 40
    expected = render(Chat(MESSAGES), text, {}) * 40
    assert render(Chat(MESSAGES), many, {}) == expected
    assert len(BoundedEnvironment().compile(many, raw=True)) > SHORT_PROGRAM
    with pytest.raises(NeedsTimeError):
        in_haste(10, lambda: BoundedEnvironment().from_string(many + " "))


def test_programs_that_python_cannot_compile_harm_nobody() -> None:
    nested = "{{ a" + " and a" * 200 + " }}"
    with pytest.raises(TemplateTooCostlyError, match="too long, or nested too deeply"):
        BoundedEnvironment().from_string(nested * 40)


def test_few_programs_are_kept() -> None:
    for number in range(20):
        compiled("x" * (MAX_TEMPLATE - 99) + str(number))
    assert sum(map(len, render_module._known)) <= CACHED_CHARACTERS
    assert "x" * (MAX_TEMPLATE - 99) + "19" in render_module._known


def test_memory_is_bounded() -> None:
    template = (
        "{% set ns = namespace(t=[]) %}{% for i in range(99999) %}{% set ns.t = ns.t + ['x' * 9999999] %}{% endfor %}"
    )
    tracemalloc.start()
    with pytest.raises(TemplateTooCostlyError, match="characters"):
        render(Chat(MESSAGES), template, {})
    assert tracemalloc.get_traced_memory()[1] < 400 * 2**20
    tracemalloc.stop()


def test_it_gives_way_where_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_SECONDS", SECONDS)
    endless = ENDLESS[0]
    for _ in range(2):
        with processor_time() as whole, pytest.raises(TemplateTooCostlyError):  # compiled from here on
            render(Chat(MESSAGES), endless, {})
    with processor_time() as taken, pytest.raises(NeedsTimeError):
        in_haste(0.01, lambda: render(Chat(MESSAGES), endless, {}))
    assert taken.seconds < whole.seconds / 2


def test_a_long_chat_has_time() -> None:
    messages = [{"role": "user", "content": "word " * 100} for _ in range(5000)]
    template = "{% for m in messages %}{{ '<' ~ m.role ~ '>' + m.content | trim }}{% endfor %}"
    assert len(render(Chat(messages), template, {})) > 2_000_000
