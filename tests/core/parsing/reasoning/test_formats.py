import pytest

from lmi_core.parsing.reasoning.formats import ALIASES, FORMATS, find_reasoning_format
from lmi_core.parsing.reasoning.harmony import mark_text
from lmi_core.parsing.reasoning.parser import AnswerContext, SplitText
from lmi_core.parsing.search import unmarked

NEW = AnswerContext("user: hi\nassistant:", tools=True)
OPENED = AnswerContext("user: hi\nassistant:<think>\n")
CLOSED = AnswerContext("user: hi\nassistant:<think>\n\n</think>\n\n")
THOUGHT = "<think>\nLet me see.\n</think>\n\nYes."
HARMONY = mark_text(
    "<|channel|>analysis<|message|>Let me<|end|><|start|>assistant<|channel|>analysis<|message|> see<|end|>"
    "<|start|>assistant<|channel|>commentary<|message|>Wait.<|end|>"
    "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>"
)
CALL = mark_text("<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}<|call|>")
IN_ANALYSIS = AnswerContext("<|start|>user<|message|>hi<|end|><|start|>assistant<|channel|>analysis<|message|>So")


def split(name: str, context: AnswerContext, pieces: list[str]) -> SplitText:
    parser = find_reasoning_format(name).new_parser(context)
    parts = [*map(parser.push, pieces), parser.finish()]
    return SplitText("".join(part.reasoning for part in parts), "".join(part.content for part in parts))


# Each is what a model writes after the prompt, and what of it is reasoning, and content.
ANSWERS = [
    ("deepseek_r1", NEW, "Let me see.\n</think>\n\nYes.", "Let me see.", "Yes."),
    ("deepseek_r1", NEW, THOUGHT, "Let me see.", "Yes."),
    ("deepseek_r1", OPENED, THOUGHT, "Let me see.", "Yes."),
    ("deepseek_r1", CLOSED, "Yes. ", "", "Yes. "),
    ("deepseek_r1", AnswerContext("assistant:", disabled=True), "Yes.", "", "Yes."),
    ("deepseek_r1", NEW, "is a < b </thi nk> ", "is a < b </thi nk>", ""),
    ("qwen3", NEW, "\n" + THOUGHT, "Let me see.", "Yes."),
    ("qwen3", NEW, " Yes. <think>No.</think>", "", " Yes. <think>No.</think>"),
    ("qwen3", NEW, "<thin", "", "<thin"),
    ("qwen3", NEW, "</think>\nYes.", "", "Yes."),
    ("qwen3", OPENED, "Let me see.", "Let me see.", ""),
    ("qwen3", NEW, "<think>See\n<tool_call>{}</tool_call>", "See", "<tool_call>{}</tool_call>"),
    ("qwen3", OPENED, "See <tool_call> </think>", "See <tool_call>", ""),
    ("qwen3", AnswerContext("assistant:<think>So", continued="<think>So"), " is it</think> Yes", "is it", "Yes"),
    ("qwen3", AnswerContext("assistant:It", continued="It"), " is", "", " is"),
    ("granite", NEW, "Here's my thought process: So. Here is my response: Yes.", "So.", "Yes."),
    ("hunyuan_a13b", NEW, "<think>\nSo.\n</think>\n<answer>\nYes </answer\n</answer>\n", "So.", "Yes </answer"),
    ("ernie45", NEW, "So.\n</think>\n\n<response>\nYes.\n</response>\n", "So.", "Yes."),
    ("ernie45", NEW, "So.\n</think>\n\nYes.", "So.", "Yes."),
    ("gemma4", NEW, "<|channel>thought\nSo.<channel|>Yes.", "So.", "Yes."),
    ("gemma4", NEW, "<|channel>So.<channel|>Yes.", "So.", "Yes."),
    ("mistral", NEW, "[THINK]So.[/THINK]Yes.[", "So.", "Yes.["),
    ("seed_oss", NEW, "<seed:think>So.</seed:think>Yes.", "So.", "Yes."),
    (
        "cohere_command4",
        NEW,
        "<|START_THINKING|>So.<|END_THINKING|><|START_RESPONSE|>Yes.<|END_RESPONSE|>",
        "So.",
        "Yes.",
    ),
    ("cohere_command4", NEW, "<|START_THINKING|>So.<|START_ACTION|>[]", "So.", "<|START_ACTION|>[]"),
    (
        "kimi_k3",
        NEW,
        "So.<|close|>think<|sep|><|open|>response<|sep|>Yes.<|close|>response<|sep|>",
        "So.",
        "Yes.",
    ),
    ("minimax_m2_append_think", OPENED, "So.</think>Yes.", "", "<think>So.</think>Yes."),
    ("openai_gptoss", NEW, HARMONY, "Let me\n see", "Wait." + CALL),
    ("openai_gptoss", NEW, mark_text("<|channel|>final<|message|>Yes.<|return|>"), "", "Yes."),
    ("openai_gptoss", NEW, mark_text("<|channel|>analysis<|message|>So<|start|>assistant<|channel|>fin"), "So", ""),
    ("openai_gptoss", NEW, mark_text("<|channel|>analysis<|message|>") + "So<|end|>", "So<|end|>", ""),
    ("openai_gptoss", AnswerContext("assistant:"), CALL + CALL[:-6], "", unmarked(CALL + CALL[:-6])),
    (
        "openai_gptoss",
        NEW,
        CALL.replace("<|call|>", "<|start|>") + mark_text("<|message|>Yes."),
        "",
        CALL.replace("call", "end") + "\nYes.",
    ),
    ("openai_gptoss", NEW, "Yes, it is.", "", "Yes, it is."),
    (
        "openai_gptoss",
        IN_ANALYSIS,
        mark_text(" is it.<|end|><|start|>assistant<|channel|>final<|message|>Yes."),
        " is it.",
        "Yes.",
    ),
    (
        "openai_gptoss",
        IN_ANALYSIS,
        mark_text("<|end|><|start|>assistant<|channel|>analysis<|message|>It is."),
        "It is.",
        "",
    ),
]


@pytest.mark.parametrize(("name", "context", "text", "reasoning", "content"), ANSWERS)
def test_split_however_the_text_is_cut(
    name: str, context: AnswerContext, text: str, reasoning: str, content: str
) -> None:
    expected = SplitText(reasoning, content)
    assert split(name, context, [text]) == expected
    assert split(name, context, list(text)) == expected
    for first in range(len(text)):
        for second in range(first, min(first + 30, len(text))):
            pieces = [text[:first], text[first:second], text[second:]]
            assert split(name, context, pieces) == expected, pieces


@pytest.mark.parametrize("name", FORMATS)
def test_text_without_markers_is_kept(name: str) -> None:
    text = "is 1 < 2 or [1] | 3 > 2?"
    reasoning, content = split(name, NEW, list(text))
    assert (reasoning + content).removeprefix("<think>") == text


def test_no_more_is_held_back_than_could_be_a_marker() -> None:
    parser = find_reasoning_format("deepseek_r1").new_parser(OPENED)
    assert parser.push("See") == ("See", "")
    assert parser.push(" <b> </") == (" <b>", "")
    assert parser.push("b>") == (" </b>", "")
    assert (parser.inside, parser.push("</think>"), parser.inside) == (True, ("", ""), False)
    assert parser.push("Yes") == ("", "Yes")


@pytest.mark.parametrize(
    ("name", "prompt", "closed"),
    [
        ("qwen3", "assistant:<think>\n", "assistant:<think>\n</think>\n\n"),
        ("qwen3", "assistant:", "assistant:"),
        ("openai_gptoss", "<|start|>assistant", "<|start|>assistant<|channel|>final<|message|>"),
        ("minimax_m2_append_think", "assistant:<think>\n", "assistant:<think>\n</think>\n\n"),
    ],
)
def test_close(name: str, prompt: str, closed: str) -> None:
    assert find_reasoning_format(name).close(prompt) == closed


def test_names() -> None:
    assert all(target in FORMATS for target in ALIASES.values())
    assert find_reasoning_format("DeepSeek-R1") is FORMATS["deepseek_r1"]
    assert find_reasoning_format("gpt-oss") is FORMATS["openai_gptoss"]
    with pytest.raises(ValueError, match=r"Did you mean `deepseek_r1`\? Known: cohere_command3, .*step3p5$"):
        find_reasoning_format("deepseek_r2")
