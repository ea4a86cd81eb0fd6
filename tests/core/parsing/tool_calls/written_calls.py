"""Texts in each format of tool calls, with their content and calls."""

import json
import random
from collections.abc import Iterable, Iterator
from typing import Any

from lmi_core.parsing.reasoning.harmony import mark_text
from lmi_core.parsing.tool_calls.formats import find_format
from lmi_core.parsing.tool_calls.parser import CallArguments, CallBegun, Content, ToolCallParser

Calls = list[tuple[str, str]]  # each function's name and arguments

TOOLS: dict[str, dict[str, Any]] = {
    "weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "exact": {"type": "boolean"},
            "place": {"$ref": "#/$defs/Place"},
            "units": {"type": "array", "items": {"type": "string"}},
        },
        "$defs": {"Place": {"type": "object", "properties": {"at": {"type": "array"}}}},
    },
    "clock": {"type": "object"},
}

# Nested brackets, quotes and escapes, a marker inside a string, and an escaped character beyond the BMP.
HARD = r'{"city": "Lo\"n}]do</tool_call>n \\ \ud83d\ude00", "days": 3, "place": {"at": [1.5, {"k": "[ARGS]"}]}}'
ARGUMENTS = json.loads(HARD)
WEATHER = ("weather", HARD)
CLOCK = ("clock", "{}")
OBJECT = f'{{"name": "weather", "arguments": {HARD}}}'
SECOND = '{"name": "clock", "arguments": {}}'
PARIS = '{"city": "Paris", "days": 3}'
PARIS_CALL = ("weather", PARIS)


def tagged(opening: str, end: str) -> str:
    return f"I look.\n{opening}\n{OBJECT}\n{end}\n{opening}{SECOND}{end}"


def qwen(opening: str, end: str) -> str:
    first = "<function=weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>"
    return f"I look.\n{opening}\n{first}\n{end}\n{opening}\n<function=clock>\n</function>\n{end}"


def glm(opening: str = "<tool_call>", end: str = "</tool_call>", prefix: str = "", after_name: str = "\n") -> str:
    key, key_end, value, value_end = (f"<{s}{prefix}arg_{w}>" for w in ("key", "value") for s in ("", "/"))
    first = f"{key}city{key_end}\n{value}Paris{value_end}\n{key}days{key_end}{value}3{value_end}"
    return f"I look.\n{opening}weather{after_name}{first}\n{end}{opening}clock{after_name}{end}"


def invoke(opening: str, end: str, prefix: str = "", attributes: tuple[str, str] = ("", "")) -> str:
    text, other = attributes
    parameter, parameter_end = f"<{prefix}parameter name=", f"</{prefix}parameter>"
    first = f'{parameter}"city"{text}>Paris{parameter_end}\n{parameter}"days"{other}>3{parameter_end}'
    calls = (
        f'<{prefix}invoke name="weather">\n{first}\n</{prefix}invoke>\n<{prefix}invoke name="clock">\n</{prefix}invoke>'
    )
    return f"I look.\n{opening}\n{calls}\n{end}"


def deepseek(first: str, second: str) -> str:
    begin, end = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
    return f"I look.\n<｜tool▁calls▁begin｜>{begin}{first}{end}\n{begin}{second}{end}<｜tool▁calls▁end｜>"


def plamo(name: str, arguments: str) -> str:
    tag = "<|plamo:{}_tool_{}:plamo|>".format
    fenced = f"{tag('begin', 'arguments')}<|plamo:constrain|>json<|plamo:msg|>{arguments}{tag('end', 'arguments')}"
    return f"{tag('begin', 'request')}{tag('begin', 'name')}{name}{tag('end', 'name')}{fenced}{tag('end', 'request')}"


def step3(name: str, parameters: str) -> str:
    within = f'<steptml:invoke name="{name}">{parameters}</steptml:invoke>'
    return f"<｜tool_call_begin｜>function<｜tool_sep｜>{within}<｜tool_call_end｜>"


STEP3_PARAMETERS = (
    '<steptml:parameter name="city">Paris</steptml:parameter><steptml:parameter name="days">3</steptml:parameter>'
)
DSML = ("｜DSML｜", (' string="true"', ' string="false"'))
HARMONY = "<|start|>assistant<|channel|>commentary to=functions.{} <|constrain|>json<|message|>{}<|call|>".format
KIMI = "<|tool_call_begin|>functions.{}:{}<|tool_call_argument_begin|>{}<|tool_call_end|>".format
K3 = '<|open|>argument key="{}" type="{}"<|sep|>{}<|close|>argument<|sep|>'.format

TWO_HARD: Calls = [WEATHER, CLOCK]
TWO_PARIS: Calls = [PARIS_CALL, CLOCK]

# For each format: text, content, calls, including one with content and two calls.
WRITTEN: list[tuple[str, str, str, Calls]] = [
    (
        "apertus",
        f'I look.<|tools_prefix|>[{{"weather": {HARD}}}, {{"clock": {{}}}}]<|tools_suffix|>',
        "I look.",
        TWO_HARD,
    ),
    (
        "cohere_command3",
        '<|START_RESPONSE|>I look.<|END_RESPONSE|><|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "weather", '
        f'"parameters": {HARD}}},\n    {{"tool_call_id": "1", "tool_name": "clock", "parameters": {{}}}}\n]'
        "<|END_ACTION|>",
        "I look.",
        TWO_HARD,
    ),
    (
        "deepseek_v3",
        deepseek(
            f"function<｜tool▁sep｜>weather\n```json\n{HARD}\n```", "function<｜tool▁sep｜>clock\n```json\n{}\n```"
        ),
        "I look.",
        TWO_HARD,
    ),
    (
        "deepseek_v31",
        deepseek(f"weather<｜tool▁sep｜>{HARD}", "clock<｜tool▁sep｜>"),
        "I look.",
        TWO_HARD,
    ),
    ("deepseek_v32", invoke("<｜DSML｜function_calls>", "</｜DSML｜function_calls>", *DSML), "I look.", TWO_PARIS),
    ("deepseek_v4", invoke("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", *DSML), "I look.", TWO_PARIS),
    (
        "deepseek_v41",
        invoke("<｜DSML｜ calls>", "</｜DSML｜ calls>", "｜DSML｜ ", DSML[1]),
        "I look.",
        TWO_PARIS,
    ),
    ("dots", invoke("<dots_function_call>", "</dots_function_call>"), "I look.", TWO_PARIS),
    ("ernie45", tagged("<tool_call>", "</tool_call>"), "I look.", TWO_HARD),
    ("ernie45", "<response>\nIt rains.\n</response>\n", "\nIt rains.\n\n", []),
    (
        "functiongemma",
        "I look.<start_function_call>call:weather{city:<escape>Paris<escape>,days:3}<end_function_call>"
        "<start_function_call>call:clock{}<end_function_call>",
        "I look.",
        TWO_PARIS,
    ),
    (
        "gemma4",
        'I look.<|tool_call>call:weather{city:<|"|>Par,}is<|"|>,days:3,place:{at:[1,<|"|>x<|"|>,{a:true}]}}<tool_call|>'
        "<|tool_call>call:clock{}<tool_call|>",
        "I look.",
        [("weather", '{"city": "Par,}is", "days": 3, "place": {"at": [1, "x", {"a": true}]}}'), CLOCK],
    ),
    (
        "gigachat3",
        f"I look.<|message_sep|>\n\nfunction call<|role_sep|>\n{OBJECT}<|message_sep|><|function_call|>{SECOND}",
        "I look.",
        TWO_HARD,
    ),
    ("glm45", glm(), "I look.", TWO_PARIS),
    ("glm45", glm(after_name=""), "I look.", TWO_PARIS),
    ("granite", f"I look.<|tool_call|>[{OBJECT}, {SECOND}]", "I look.", TWO_HARD),
    ("granite", f"<tool_call>[{OBJECT}]", "", [WEATHER]),
    ("granite-20b-fc", f"I look. <function_call> {OBJECT} <function_call> {SECOND}", "I look.", TWO_HARD),
    ("hermes", tagged("<tool_call>", "</tool_call>"), "I look.", TWO_HARD),
    ("hunyuan_a13b", f"I look.\n<tool_calls>[{OBJECT}, {SECOND}]</tool_calls>", "I look.", TWO_HARD),
    (
        "hy_v3",
        f"I look.<tool_calls>\n{glm(after_name='<tool_sep>').removeprefix('I look.')}\n</tool_calls>",
        "I look.",
        TWO_PARIS,
    ),
    (
        "inkling",
        "<|content_text|>I look.<|end_message|><|message_model|><|content_invoke_tool_json|>"
        f'{{"name": "weather", "args": {HARD}}}<|end_message|><|message_model|><|content_invoke_tool_json|>'
        '{"name": "clock", "args": {}}<|end_message|><|content_model_end_sampling|>',
        "I look.",
        TWO_HARD,
    ),
    (
        "internlm",
        f"I look.<|action_start|><|plugin|>\n{OBJECT}<|action_end|><|action_start|> <|plugin|>{SECOND}<|action_end|>\n",
        "I look.",
        TWO_HARD,
    ),
    ("jamba", f"I look.<tool_calls>[\n{OBJECT},\n{SECOND}\n]</tool_calls>", "I look.", TWO_HARD),
    (
        "k2_horizon",
        f"I look.<ifm|tool_calls>\n{glm('<ifm|tool_call>', '</ifm|tool_call>', 'ifm|').removeprefix('I look.')}"
        "</ifm|tool_calls>",
        "I look.",
        TWO_PARIS,
    ),
    (
        "k2_horizon",
        "<ifm|tool_calls><ifm|tool_call>clock\n<ifm|arg_key>at</ifm|arg_key><ifm|arg_type>integer</ifm|arg_type>"
        "<ifm|arg_value>3</ifm|arg_value></ifm|tool_call></ifm|tool_calls>",
        "",
        [("clock", '{"at": 3}')],
    ),
    (
        "kimi_k2",
        f"I look.<|tool_calls_section_begin|>{KIMI('weather', 0, HARD)}{KIMI('clock', 1, '')}"
        "<|tool_calls_section_end|>",
        "I look.",
        TWO_HARD,
    ),
    (
        "kimi_k3",
        '<|open|>response<|sep|>I look.<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool="weather" '
        f'index="1"<|sep|>{K3("city", "string", "Paris")}{K3("days", "number", "3")}<|close|>call<|sep|><|open|>call '
        'tool="clock" index="2"<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>',
        "I look.",
        TWO_PARIS,
    ),
    (
        "lfm2",
        'I look.<|tool_call_start|>[weather(city="Paris", days=3), clock()]<|tool_call_end|>',
        "I look.",
        TWO_PARIS,
    ),
    ("llama3_json", f"I look. {OBJECT}; {SECOND}", "I look.", TWO_HARD),
    ("llama3_json", f"<|python_tag|>{OBJECT}", "", [WEATHER]),
    (
        "llama4_pythonic",
        'I look. <|python_start|>[weather(city="Paris", days=3), clock()]<|python_end|>',
        "I look.",
        TWO_PARIS,
    ),
    ("longcat", tagged("<longcat_tool_call>", "</longcat_tool_call>"), "I look.", TWO_HARD),
    (
        "minicpm5",
        'I look.<function name="weather"><param name="city">Paris</param><param name=\'days\'>3</param></function>'
        '<function name="clock"></function>',
        "I look.",
        TWO_PARIS,
    ),
    ("minimax", f"I look.\n<tool_calls>\n{OBJECT}\n{SECOND}\n</tool_calls>", "I look.", TWO_HARD),
    ("minimax_m2", invoke("<minimax:tool_call>", "</minimax:tool_call>"), "I look.", TWO_PARIS),
    ("mistral", f"I look.[TOOL_CALLS]weather[ARGS]{HARD}[TOOL_CALLS]clock[ARGS]{{}}", "I look.", TWO_HARD),
    ("mistral", f"[TOOL_CALLS]weather{HARD}[TOOL_CALLS]clock[CALL_ID]a1b2c3d4e[ARGS]{{}}", "", TWO_HARD),
    ("mistral", f"[TOOL_CALLS] [{OBJECT}, {SECOND}]", "", TWO_HARD),
    (
        "olmo3",
        'I look.\n<function_calls>weather(city="Paris", days=3)\nclock()</function_calls>',
        "I look.",
        TWO_PARIS,
    ),
    (
        "openai",
        mark_text(
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
            + HARMONY("weather", HARD)
            + "<|start|>assistant to=functions.clock<|channel|>commentary<|message|>{}<|call|>"
        ),
        "I look.",
        TWO_HARD,
    ),
    ("openai", mark_text("<|channel|>final<|message|>It rains.<|return|>"), "It rains.", []),
    ("openai", mark_text(" to=functions.clock<|channel|>commentary json<|message|>{}"), "", [CLOCK]),
    ("phi4_mini_json", f"I look. functools[{OBJECT}, {SECOND}]", "I look.", TWO_HARD),
    (
        "plamo3",
        f"I look.<|plamo:begin_tool_requests:plamo|>{plamo('weather', HARD)}{plamo('clock', '{}')}"
        "<|plamo:end_tool_requests:plamo|>",
        "I look.",
        TWO_HARD,
    ),
    ("pythonic", 'I look. [weather(city="Paris", days=3), clock()]', "I look.", TWO_PARIS),
    (
        "pythonic",
        """[weather(city='L\\'o"n)do,n', days=-3, exact=true, place={'at': [None, (1, 2)]}, units=["a]"])]""",
        "",
        [
            (
                "weather",
                '{"city": "L\'o\\"n)do,n", "days": -3, "exact": true, "place": {"at": [null, [1, 2]]}, '
                '"units": ["a]"]}',
            )
        ],
    ),
    ("pythonic", "[weather('Paris', 3)]", "", [PARIS_CALL]),
    ("qwen3_coder", qwen("<tool_call>", "</tool_call>"), "I look.", TWO_PARIS),
    ("qwen3_coder", tagged("<tool_call>", "</tool_call>"), "I look.", TWO_HARD),
    ("qwen3_coder", "<function=clock>\n</function>", "", [CLOCK]),
    ("seed_oss", qwen("<seed:tool_call>", "</seed:tool_call>"), "I look.", TWO_PARIS),
    (
        "step3",
        f"I look.<｜tool_calls_begin｜>{step3('weather', STEP3_PARAMETERS)}\n{step3('clock', '')}<｜tool_calls_end｜>",
        "I look.",
        TWO_PARIS,
    ),
    ("xlam", f"[{OBJECT}, {SECOND}]", "", TWO_HARD),
    ("xlam", f"I look.\n```json\n[{OBJECT},\n{SECOND}]\n```", "I look.", TWO_HARD),
    ("xlam", f"I look. [TOOL_CALLS][{OBJECT}]", "I look.", [WEATHER]),
]


def read(parser: ToolCallParser, parts: Iterable[str]) -> tuple[str, Calls]:
    """Return the content and the calls, assembled from the pieces as a client does.

    Content between the parts of a call would have no place in answers that are a list of texts and calls.
    """
    pieces = [piece for part in parts for piece in parser.push(part)] + parser.finish()
    content: list[str] = []
    calls: list[list[str]] = []
    within_call = False
    for piece in pieces:
        match piece:
            case Content(text):
                content.append(text)
                within_call = False
            case CallBegun(index, name):
                assert index == len(calls)
                calls.append([name, ""])
                within_call = True
            case CallArguments(index, text):
                assert index == len(calls) - 1
                assert within_call
                calls[index][1] += text
    return "".join(content), [(name, arguments) for name, arguments in calls]


def read_as(name: str, parts: Iterable[str]) -> tuple[str, Calls]:
    return read(find_format(name).make(TOOLS), parts)


def splits(text: str) -> Iterator[list[str]]:
    """Yield splits of the text: into characters, into every pair of parts, and at random."""
    yield list(text)
    for place in range(1, len(text)):
        yield [text[:place], text[place:]]
    chance = random.Random(repr(text))
    for _ in range(20):
        places = sorted(chance.sample(range(len(text) + 1), min(len(text), chance.randint(2, 12))))
        yield [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
