"""A call after some content, in each family of tool call formats."""

import re

from lmi_core.parsing.reasoning.harmony import TEXT

PARIS = '{"city": "Paris"}'
BARE = f'{{"name": "weather", "parameters": {PARIS}}}'

# One of each family: JSON after a marker, JSON anywhere, segments, parameters in tags, Python, braces, channels.
SAID: dict[str, str] = {
    "granite": f"Let me see. <|tool_call|>[{BARE}]",
    "llama3_json": f"Let me see.\n{BARE}",
    "mistral": f"Let me see.[TOOL_CALLS]weather[ARGS]{PARIS}",
    "deepseek_v3": "Let me see.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n"
    f"{PARIS}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "qwen3_coder": "Let me see.\n<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n"
    "</tool_call>",
    "pythonic": "Let me see. [weather(city='Paris')]",
    "gemma4": 'Let me see.<|tool_call>call:weather{city:<|"|>Paris<|"|>}<tool_call|>',
    "openai": "<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant<|channel|>commentary "
    f"to=functions.weather <|constrain|>json<|message|>{PARIS}<|call|>",
}


def tokens(said: str, length: int = 1) -> list[str]:
    """Split a text into tokens of this length, but for markers of harmony, which are always one token."""
    return re.findall(rf"(?s){TEXT.pattern}|(?:(?!{TEXT.pattern}).){{1,{length}}}", said)
