"""The formats of models' tool calls, by their usual names."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from random import choices
from string import ascii_letters, digits
from typing import Any

from lmi_core.errors.did_you_mean import did_you_mean
from lmi_core.parsing.reasoning.harmony import TEXTS as HARMONY_TEXTS
from lmi_core.parsing.tool_calls.braced_parameters import BracedCalls
from lmi_core.parsing.tool_calls.harmony import HarmonyCalls
from lmi_core.parsing.tool_calls.incremental import Tools
from lmi_core.parsing.tool_calls.marked_json import BareJson, MarkedJson
from lmi_core.parsing.tool_calls.parser import CallId, ToolCallParser
from lmi_core.parsing.tool_calls.python_calls import PythonCalls
from lmi_core.parsing.tool_calls.segments import SegmentedCalls, SegmentForm
from lmi_core.parsing.tool_calls.tagged_parameters import TagForm, TaggedCalls


@dataclass(frozen=True, slots=True)
class ToolCallFormat:
    """A format of tool calls, of which `make` creates the parser of one sequence."""

    models: str  # models that use the format, for documentation
    make: Callable[[Tools], ToolCallParser]
    markers: tuple[str, ...] = ()  # texts that the parser must see, even if they are special tokens
    call_id: CallId | None = None  # makes call ids in the form that chat templates require; None: any form


def find_format(name: str) -> ToolCallFormat:
    """Return the format of that name. Raise ValueError with the known names for any other."""
    found = FORMATS.get(ALIASES.get(name, name))
    if found is None:
        known = sorted([*FORMATS, *ALIASES])
        suggestion = did_you_mean(name, known)
        raise ValueError(f"must be a known tool-call format.{suggestion} Known: {', '.join(known)}")
    return found


def _json(
    models: str,
    *markers: str,
    ends: Sequence[str] = (),
    special: Sequence[str] = (),
    keyed: bool = False,
) -> ToolCallFormat:
    make = partial(MarkedJson, markers=markers, ends=ends, special=special, keyed=keyed)
    return ToolCallFormat(models, make, (*markers, *ends, *special))


def _bare(models: str, *markers: str, ends: Sequence[str] = (), special: Sequence[str] = ()) -> ToolCallFormat:
    return ToolCallFormat(models, partial(BareJson, markers=markers, ends=ends, special=special), (*markers, *special))


def _segments(models: str, form: SegmentForm, call_id: CallId | None = None) -> ToolCallFormat:
    return ToolCallFormat(models, partial(SegmentedCalls, form=form), _texts(form), call_id)


def _tags(models: str, form: TagForm) -> ToolCallFormat:
    return ToolCallFormat(models, partial(TaggedCalls, form=form), _texts(form))


def _python(models: str, *markers: str, ends: Sequence[str] = (), special: Sequence[str] = ()) -> ToolCallFormat:
    make = partial(PythonCalls, markers=markers, ends=ends, special=special)
    return ToolCallFormat(models, make, (*markers, *ends, *special))


def _braced_format(models: str, marker: str, end: str, quote: str) -> ToolCallFormat:
    return ToolCallFormat(models, partial(BracedCalls, marker=marker, end=end, quote=quote), (marker, end, quote))


def _texts(form: Any) -> tuple[str, ...]:
    """Return all texts that the parser of a form looks for."""
    fields = [field for field in astuple(form) if isinstance(field, str | tuple)]
    texts = [text for field in fields for text in ([field] if isinstance(field, str) else field)]
    return tuple(text for text in texts if len(text) > 1)


def _qwen(opening: str, end: str) -> TagForm:
    return TagForm(
        call=("<function=",),
        name_ends=(">",),
        call_end="</function>",
        parameter="<parameter=",
        key_end=">",
        value_end="</parameter>",
        wrappers=(opening,),
        ends=(end,),
        broken_lines=True,
    )


def _glm(
    opening: str = "<tool_call>",
    end: str = "</tool_call>",
    prefix: str = "",
    name_ends: tuple[str, ...] = ("\n",),
    **others: Any,
) -> TagForm:
    return TagForm(
        call=(opening,),
        name_ends=name_ends,
        call_end=end,
        parameter=f"<{prefix}arg_key>",
        key_end=f"</{prefix}arg_key>",
        value_begin=f"<{prefix}arg_value>",
        value_end=f"</{prefix}arg_value>",
        **others,
    )


def _invoke(opening: str, end: str, prefix: str = "", special: bool = False) -> TagForm:
    return TagForm(
        call=(f"<{prefix}invoke name=",),
        name_ends=(">",),
        call_end=f"</{prefix}invoke>",
        parameter=f"<{prefix}parameter ",
        key_end=">",
        value_end=f"</{prefix}parameter>",
        wrappers=(opening,),
        ends=(end,),
        special=(opening, end) if special else (),
    )


def _deepseek(kind_end: str, name_end: str, fence: tuple[str, str]) -> SegmentForm:
    return SegmentForm(
        call="<｜tool▁call▁begin｜>",
        kind_end=kind_end,
        name_ends=(name_end,),
        fence=fence,
        call_end="<｜tool▁call▁end｜>",
        sections=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    )


TOOL_CALL, END_OF_TOOL_CALL = "<tool_call>", "</tool_call>"
STEP3 = ("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>", "<｜tool_call_begin｜>", "<｜tool_call_end｜>")

FORMATS: Mapping[str, ToolCallFormat] = {
    "apertus": _json(
        "Apertus", "<|tools_prefix|>", ends=["<|tools_suffix|>"], special=["<|tools_suffix|>"], keyed=True
    ),
    "cohere_command3": _json(
        "Command A, Command R7B",
        "<|START_ACTION|>",
        ends=["<|END_ACTION|>"],
        special=["<|START_ACTION|>", "<|END_ACTION|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"],
    ),
    "deepseek_v3": _segments("DeepSeek-V3, DeepSeek-R1", _deepseek("<｜tool▁sep｜>", "\n", ("```json", "```"))),
    "deepseek_v31": _segments("DeepSeek-V3.1", _deepseek("", "<｜tool▁sep｜>", ("", ""))),
    "deepseek_v32": _tags(
        "DeepSeek-V3.2", _invoke("<｜DSML｜function_calls>", "</｜DSML｜function_calls>", "｜DSML｜", special=True)
    ),
    "deepseek_v4": _tags(
        "DeepSeek-V4", _invoke("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", "｜DSML｜", special=True)
    ),
    "deepseek_v41": _tags("DeepSeek-V4.1", _invoke("<｜DSML｜ calls>", "</｜DSML｜ calls>", "｜DSML｜ ", special=True)),
    "dots": _tags("dots.llm", _invoke("<dots_function_call>", "</dots_function_call>")),
    "ernie45": _json("ERNIE 4.5", TOOL_CALL, ends=[END_OF_TOOL_CALL], special=["<response>", "</response>"]),
    "functiongemma": _braced_format("FunctionGemma", "<start_function_call>", "<end_function_call>", "<escape>"),
    "gemma4": _braced_format("Gemma 4", "<|tool_call>", "<tool_call|>", '<|"|>'),
    "gigachat3": _json(
        "GigaChat 3", "function call<|role_sep|>", "<|function_call|>", special=["<|message_sep|>", "<|function_call|>"]
    ),
    "glm45": _tags("GLM-4.5, GLM-4.6, GLM-4.7", _glm()),
    "granite": _json("Granite 3", "<|tool_call|>", TOOL_CALL, ends=[END_OF_TOOL_CALL], special=["<|tool_call|>"]),
    "granite-20b-fc": _json("Granite 20B function calling", "<function_call>", ends=["</function_call>"]),
    "hermes": _json("Hermes 2 Pro, Hermes 3, Qwen2.5, QwQ, Qwen3, Granite 4", TOOL_CALL, ends=[END_OF_TOOL_CALL]),
    "hunyuan_a13b": _json("Hunyuan-A13B", "<tool_calls>", ends=["</tool_calls>"]),
    "hy_v3": _tags(
        "Hunyuan 3",
        _glm(name_ends=("<tool_sep>", "\n"), wrappers=("<tool_calls>",), ends=("</tool_calls>",)),
    ),
    "inkling": _json(
        "Inkling",
        "<|content_invoke_tool_json|>",
        ends=["<|end_message|>"],
        special=[
            "<|content_invoke_tool_json|>",
            "<|end_message|>",
            "<|message_model|>",
            "<|content_text|>",
            "<|content_model_end_sampling|>",
        ],
    ),
    "internlm": _json(
        "InternLM 2.5, InternLM 3, Intern-S1",
        "<|action_start|><|plugin|>",
        "<|action_start|> <|plugin|>",
        ends=["<|action_end|>"],
        special=["<|action_start|>", "<|plugin|>", "<|action_end|>"],
    ),
    "jamba": _json("Jamba 1.5, Jamba 1.6", "<tool_calls>", ends=["</tool_calls>"]),
    "k2_horizon": _tags(
        "K2 Horizon",
        _glm(
            "<ifm|tool_call>",
            "</ifm|tool_call>",
            "ifm|",
            wrappers=("<ifm|tool_calls>",),
            ends=("</ifm|tool_calls>",),
        ),
    ),
    "kimi_k2": _segments(
        "Kimi K2",
        SegmentForm(
            call="<|tool_call_begin|>",
            name_ends=("<|tool_call_argument_begin|>",),
            call_end="<|tool_call_end|>",
            sections=(
                "<|tool_calls_section_begin|>",
                "<|tool_calls_section_end|>",
                "<|tool_call_section_begin|>",
                "<|tool_call_section_end|>",
            ),
            name=re.compile(r"(?:functions\.)?(\S+?)(?::\d+)?"),
            id=re.compile(r"\S+:\d+"),
        ),
        lambda name, index: f"functions.{name}:{index}",
    ),
    "kimi_k3": _tags(
        "Kimi K3",
        TagForm(
            call=("<|open|>call ",),
            name_ends=("<|sep|>",),
            call_end="<|close|>call<|sep|>",
            parameter="<|open|>argument ",
            key_end="<|sep|>",
            value_end="<|close|>argument<|sep|>",
            wrappers=("<|open|>tools<|sep|>",),
            ends=("<|close|>tools<|sep|>",),
            special=(
                "<|open|>tools<|sep|>",
                "<|close|>tools<|sep|>",
                "<|open|>response<|sep|>",
                "<|close|>response<|sep|>",
                "<|close|>message<|sep|>",
            ),
        ),
    ),
    "lfm2": _python(
        "LFM2, LFM2.5",
        "<|tool_call_start|>",
        ends=["<|tool_call_end|>"],
        special=["<|tool_call_start|>", "<|tool_call_end|>"],
    ),
    "llama3_json": _bare("Llama 3.1, 3.2, 3.3", "<|python_tag|>", special=["<|python_tag|>", "<|eom_id|>"]),
    "llama4_pythonic": _python("Llama 4", special=["<|python_start|>", "<|python_end|>"]),
    "longcat": _json("LongCat-Flash", "<longcat_tool_call>", ends=["</longcat_tool_call>"]),
    "minicpm5": _tags(
        "MiniCPM5",
        TagForm(
            call=("<function name=",),
            name_ends=(">",),
            call_end="</function>",
            parameter="<param name=",
            key_end=">",
            value_end="</param>",
        ),
    ),
    "minimax": _json("MiniMax-M1", "<tool_calls>", ends=["</tool_calls>"]),
    "minimax_m2": _tags("MiniMax-M2", _invoke("<minimax:tool_call>", "</minimax:tool_call>")),
    "mistral": _segments(
        "Mistral, Mixtral, Magistral, Devstral, Ministral",
        SegmentForm(call="[TOOL_CALLS]", name_ends=("[ARGS]", "{"), id_begin="[CALL_ID]"),
        lambda name, index: "".join(choices(ascii_letters + digits, k=9)),  # as Mistral's chat templates require
    ),
    "olmo3": _python("OLMo 3", "<function_calls>", ends=["</function_calls>"]),
    "openai": ToolCallFormat("gpt-oss", HarmonyCalls, HARMONY_TEXTS),
    "phi4_mini_json": _json("Phi-4-mini", "functools"),
    "plamo3": _segments(
        "PLaMo 3",
        SegmentForm(
            call="<|plamo:begin_tool_request:plamo|>",
            kind_end="<|plamo:begin_tool_name:plamo|>",
            name_ends=("<|plamo:end_tool_name:plamo|>",),
            fence=(
                "<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>",
                "<|plamo:end_tool_arguments:plamo|>",
            ),
            call_end="<|plamo:end_tool_request:plamo|>",
            sections=("<|plamo:begin_tool_requests:plamo|>", "<|plamo:end_tool_requests:plamo|>"),
        ),
    ),
    "pythonic": _python("Llama 3.2, ToolACE", special=["<|python_tag|>"]),
    "qwen3_coder": _tags("Qwen3-Coder, Qwen3.5, MiMo, Step-3.5", _qwen(TOOL_CALL, END_OF_TOOL_CALL)),
    "seed_oss": _tags("Seed-OSS", _qwen("<seed:tool_call>", "</seed:tool_call>")),
    "step3": _tags(
        "Step-3",
        TagForm(
            call=("<steptml:invoke name=",),
            name_ends=(">",),
            call_end="</steptml:invoke>",
            parameter="<steptml:parameter name=",
            key_end=">",
            value_end="</steptml:parameter>",
            wrappers=("<｜tool_call_begin｜>function<｜tool_sep｜>",),
            ends=STEP3,
            special=STEP3,
        ),
    ),
    "xlam": _bare("xLAM", "```json", "[TOOL_CALLS]", TOOL_CALL, ends=["```", END_OF_TOOL_CALL]),
}

# Aliases: the names of these formats in vLLM and SGLang, and names of models that share a format.
ALIASES: Mapping[str, str] = {
    "apertus2509": "apertus",
    "cohere_command4": "cohere_command3",
    "deepseekv3": "deepseek_v3",
    "deepseekv31": "deepseek_v31",
    "deepseekv32": "deepseek_v32",
    "deepseekv4": "deepseek_v4",
    "glm": "glm45",
    "glm47": "glm45",
    "gpt-oss": "openai",
    "granite4": "hermes",
    "hunyuan": "hunyuan_a13b",
    "interns1": "internlm",
    "ling3": "glm45",
    "llama3": "llama3_json",
    "llama4_json": "llama3_json",
    "mimo": "qwen3_coder",
    "minimax-m2": "minimax_m2",
    "poolside_v1": "glm45",
    "qwen": "hermes",
    "qwen25": "hermes",
    "qwen3": "qwen3_coder",
    "qwen3_json": "hermes",
    "qwen3_xml": "qwen3_coder",
    "step3p5": "qwen3_coder",
}
