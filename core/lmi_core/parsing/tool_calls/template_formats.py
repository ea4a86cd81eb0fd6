"""Detection of a model's tool call format from its chat template."""

# Texts that identify each format in a template; a more specific format precedes one that shares its texts.
SIGNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("mistral", ("[TOOL_CALLS]",)),
    ("deepseek_v32", ("｜DSML｜", "function_calls")),
    ("deepseek_v41", ("｜DSML｜ calls",)),
    ("deepseek_v4", ("｜DSML｜", "tool_calls")),
    ("deepseek_v3", ("<｜tool▁call▁begin｜>", "```json")),
    ("deepseek_v31", ("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>")),
    ("kimi_k2", ("<|tool_call_begin|>", "<|tool_call_argument_begin|>")),
    ("kimi_k3", ("<|open|>", "<|close|>", "<|sep|>")),
    ("internlm", ("<|action_start|>", "<|plugin|>")),
    ("cohere_command3", ("<|START_ACTION|>",)),
    ("apertus", ("<|tools_prefix|>",)),
    ("lfm2", ("<|tool_call_start|>",)),
    ("inkling", ("<|content_invoke_tool_json|>",)),
    ("plamo3", ("<|plamo:begin_tool_request:plamo|>",)),
    ("openai", ("<|channel|>", "<|message|>", "functions.")),
    ("functiongemma", ("<start_function_call>", "<escape>")),
    ("gemma4", ("<|tool_call>", "call:")),
    ("minimax_m2", ("<minimax:tool_call>",)),
    ("seed_oss", ("<seed:tool_call>",)),
    ("step3", ("steptml:invoke",)),
    ("dots", ("<dots_function_call>",)),
    ("longcat", ("<longcat_tool_call>",)),
    ("k2_horizon", ("<ifm|tool_call>", "<ifm|arg_key>")),
    ("hy_v3", ("<tool_sep>", "<arg_key>")),
    ("glm45", ("<tool_call>", "<arg_key>", "<arg_value>")),
    ("qwen3_coder", ("<tool_call>", "<function=", "<parameter=")),
    ("granite", ("<|tool_call|>",)),
    ("phi4_mini_json", ("functools[",)),
    ("olmo3", ("<function_calls>", "</function_calls>")),
    ("hermes", ("<tool_call>",)),
    ("llama3_json", ('{"name": ', '"parameters": ')),
)


def template_format(template: str) -> str | None:
    """Return the name of the template's tool call format, or None if uncertain."""
    for name, signs in SIGNS:
        if all(sign in template for sign in signs):
            return None if name == "hermes" and "<function=" in template else name
    return None
