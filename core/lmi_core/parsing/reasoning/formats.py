"""The values of `option.reasoning_parser`, as in vLLM and SGLang, and their formats."""

from collections.abc import Iterator
from types import MappingProxyType

from lmi_core.errors.did_you_mean import did_you_mean
from lmi_core.parsing.reasoning.harmony import Harmony
from lmi_core.parsing.reasoning.markers import Markers
from lmi_core.parsing.reasoning.parser import AnswerContext, ReasoningFormat, ReasoningParser

TAG = "<think>"


class TaggedContent(ReasoningFormat):
    """A parser that prefixes the content with the tag at the end of the prompt."""

    def reads(self, special_token: str) -> bool:
        return special_token in ("<think>", "</think>")

    def new_parser(self, context: AnswerContext) -> ReasoningParser:
        return _Prefix("" if context.continued else TAG)

    def close(self, prompt: str) -> str:
        return f"{prompt.rstrip()}\n</think>\n\n" if prompt.rstrip().endswith(TAG) else prompt


class _Prefix(ReasoningParser):
    def __init__(self, tag: str) -> None:
        super().__init__()
        self.content = tag

    def read(self) -> Iterator[None]:
        while True:
            self.content += self.held
            self.held = ""
            yield


TOOL_CALL = ("<tool_call>",)

# A marker at the end of the prompt takes precedence. Most current templates write one; `opened` is for the others.
THINK = Markers()
THINK_OPENED = Markers(opened=True)
THINK_AND_CALL = Markers(interrupts=TOOL_CALL)
THINK_OPENED_AND_CALL = Markers(opened=True, interrupts=TOOL_CALL)
GRANITE = Markers(
    ("Here is my thought process:", "Here's my thought process:"), ("Here is my response:", "Here's my response:")
)
COHERE = Markers(
    ("<|START_THINKING|>",),
    ("<|END_THINKING|>",),
    interrupts=("<|START_ACTION|>",),
    wrapper=("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
)
K2_HORIZON = Markers(
    ("<ifm|think>", "<ifm|think_fast>", "<ifm|think_faster>"),
    ("</ifm|think>", "</ifm|think_fast>", "</ifm|think_faster>"),
    interrupts=("<ifm|tool_calls>",),
)
KIMI_K3 = Markers(
    ("<|open|>think<|sep|>",),
    ("<|close|>think<|sep|>",),
    opened=True,
    interrupts=("<|open|>tools<|sep|>",),
    wrapper=("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
)
MINIMAX = Markers(opened=True, interrupts=("<minimax:tool_call>",))
PLAMO = Markers(
    ("<|plamo:begin_think:plamo|>",), ("<|plamo:end_think:plamo|>",), True, ("<|plamo:begin_tool_requests:plamo|>",)
)

FORMATS = MappingProxyType[str, ReasoningFormat](
    {
        "cohere_command3": COHERE,
        "cohere_command4": COHERE,
        "deepseek_r1": THINK_OPENED,
        "deepseek_v3": THINK,
        "deepseek_v4": THINK,
        "deepseek_v41": THINK,
        "ernie45": Markers(opened=True, wrapper=("<response>", "</response>")),
        "gemma4": Markers(("<|channel>thought", "<|channel>"), ("<channel|>",), interrupts=("<|tool_call>",)),
        "glm45": THINK_AND_CALL,
        "glm47": THINK_AND_CALL,
        "granite": GRANITE,
        "granite_thinking_parser": THINK_OPENED_AND_CALL,
        "holo2": THINK_OPENED,
        "hunyuan_a13b": Markers(wrapper=("<answer>", "</answer>")),
        "hy_v3": THINK,
        "k2_horizon": K2_HORIZON,
        "kimi": Markers(("◁think▷",), ("◁/think▷",)),
        "kimi_k2": Markers(interrupts=("<|tool_calls_section_begin|>",)),
        "kimi_k3": KIMI_K3,
        "ling3": THINK_AND_CALL,
        "mimo": THINK_AND_CALL,
        "minicpmv": THINK_AND_CALL,
        "minimax_m2": MINIMAX,
        "minimax_m2_append_think": TaggedContent(),
        "minimax_m3": Markers(("<mm:think>",), ("</mm:think>",)),
        "mistral": Markers(("[THINK]", "<think>"), ("[/THINK]", "</think>"), interrupts=("[TOOL_CALLS]",)),
        "nemotron_v3": THINK_OPENED_AND_CALL,
        "olmo3": THINK_OPENED,
        "openai_gptoss": Harmony(),
        "plamo3": PLAMO,
        "poolside_v1": THINK,
        "qwen3": THINK_AND_CALL,
        "qwen3_thinking": THINK_OPENED_AND_CALL,
        "seed_oss": Markers(("<seed:think>",), ("</seed:think>",), interrupts=("<seed:tool_call>",)),
        "step3": THINK_OPENED,
        "step3p5": THINK_OPENED_AND_CALL,
    }
)
# Names used by SGLang and by earlier versions of vLLM and SGLang.
ALIASES = MappingProxyType(
    {
        "deepseek_v31": "deepseek_v3",
        "gpt_oss": "openai_gptoss",
        "gptoss": "openai_gptoss",
        "hunyuan": "hunyuan_a13b",
        "interns1": "qwen3",
        "minimax": "minimax_m2",
        "minimax_append_think": "minimax_m2_append_think",
        "nano_v3": "nemotron_v3",
        "nemotron_3": "nemotron_v3",
    }
)


def find_reasoning_format(name: str) -> ReasoningFormat:
    """Return the format of that name; `-` equals `_`. Raise ValueError with the known names for any other."""
    plain = name.lower().replace("-", "_")
    found = FORMATS.get(ALIASES.get(plain, plain))
    if found is None:
        hint = did_you_mean(plain, [*FORMATS, *ALIASES])
        raise ValueError(f"must be a known reasoning format.{hint} Known: {', '.join(FORMATS)}")
    return found
