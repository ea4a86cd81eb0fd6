"""lmi_core has no key of a dialect's JSON and no header of SageMaker's; what model.py files read and write is named."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "core" / "lmi_core"
DIALECTS = [
    ROOT / "core" / "lmi_schemas",
    ROOT / "handlers" / "djl_python",
    ROOT / "handlers" / "lmi_handlers",
    ROOT / "plugins" / "lmi_plugins" / "formatters",
]

# Left out are words that mean something else too (`name`, `error`, `text`), and LMI's names of parameters, which every
# dialect's are translated into.
KEYS_OF_DIALECTS = [
    # LMI's and TGI's
    {"best_of_sequences", "error_type", "generated_text", "generated_tokens", "input_length", "inputs", "outputs"},
    {"log_prob", "logprob", "special", "special_token"},
    # OpenAI's
    {
        "choices",
        "completion_tokens",
        "delta",
        "max_completion_tokens",
        "messages",
        "prompt_tokens",
        "reasoning_content",
    },
    {"response_format", "stream_options", "system_fingerprint", "tool_choice", "top_logprobs", "total_tokens", "usage"},
    # Triton's
    {"cumulative_logprob", "datatype", "model_version", "num_input_tokens", "text_input", "text_output"},
    # happy_vllm's
    {"finish_reasons", "responses", "usages"},
]
DIALECT_KEYS = frozenset[str]().union(*KEYS_OF_DIALECTS)
MODELS = ("BaseModel", "Fields", "Payload")  # the ends of the names of bases whose fields are keys
SAGEMAKER_HEADER = re.compile("x-amzn-", re.IGNORECASE)

# Names that functions of a model.py read and write by DJLServing's documentation, whichever dialect the client speaks.
MODEL_PY_CONTRACTS = {
    # `decode` of djl_python.encode_decode, an `Input` of an answer that goes on, and the items of an `Output`'s stream
    "script/djl_names/encode_decode.py": {"inputs"},
    "script/djl_names/inputs.py": {"inputs"},
    "script/djl_names/outputs.py": {"outputs"},
    # a prediction handler's argument
    "script/function/script.py": {"inputs"},
    # the arguments of output formatters: vLLM's response objects, `response_data`, `Token.as_dict`, and `details`
    "script/formatters/contracts.py": {"choices", "generated_text", "inputs"},
    "script/formatters/engine_response.py": {
        *("choices", "completion_tokens", "delta", "prompt_tokens", "system_fingerprint", "total_tokens", "usage"),
    },
    "script/formatters/request_io.py": {"log_prob", "logprob", "special", "special_token"},
    "script/formatters/text_generation.py": {"generated_tokens", "inputs", "prompt_tokens"},
}
VOCABULARY = {
    "texts/chat_template.py": {"messages"},  # a variable of chat templates
    "generation/request.py": {"inputs"},  # LMI's name for the prompt, as it has names for the parameters
}


def names(code: ast.Module) -> Iterator[str]:
    """The texts that a source has outside of docstrings and f-strings, and the fields of its pydantic models."""
    left_out = {id(part) for node in ast.walk(code) if isinstance(node, ast.JoinedStr) for part in node.values}
    left_out |= {id(node.value) for node in ast.walk(code) if isinstance(node, ast.Expr)}
    for node in ast.walk(code):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            yield node.value
        elif isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith(MODELS) for base in node.bases):
            yield from (ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "dict":
            yield from (each.arg for each in node.keywords if each.arg is not None)


def dialect_names(code: ast.Module) -> set[str]:
    return {name for name in names(code) if name in DIALECT_KEYS or SAGEMAKER_HEADER.search(name)}


def sources(*folders: Path) -> dict[Path, ast.Module]:
    found = [source for folder in folders for source in sorted(folder.rglob("*.py"))]
    assert found
    return {source: ast.parse(source.read_text(encoding="utf-8"), source) for source in found}


def test_the_core_has_no_key_of_a_dialect() -> None:
    found = {str(source.relative_to(CORE)): dialect_names(code) for source, code in sources(CORE).items()}
    assert {source: keys for source, keys in found.items() if keys} == MODEL_PY_CONTRACTS | VOCABULARY


def test_every_key_is_of_a_dialect() -> None:
    used = {name for code in sources(*DIALECTS).values() for name in names(code)}
    assert DIALECT_KEYS - used == set()
    assert any(SAGEMAKER_HEADER.search(name) for name in used)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x['choices']", {"choices"}),
        ("{'usage': 1}", {"usage"}),
        ("answer = dict(usage=1, other=2)", {"usage"}),
        ("KEYS = ('text_output', 'other')", {"text_output"}),
        ("class P(BaseModel):\n    inputs: str\n    other: int", {"inputs"}),
        ("class P(payload.TolerantPayload):\n    inputs: str", {"inputs"}),
        ("class Output(NamedTuple):\n    usage: int", set()),
        ("output.usage", set()),
        ('"""usage"""', set()),
        ("f'usage{x}'", set()),
        ("headers['X-Amzn-SageMaker-Session-Id']", {"X-Amzn-SageMaker-Session-Id"}),
        ("'the field usage'", set()),
    ],
)
def test_names_of_a_source(code: str, expected: set[str]) -> None:
    assert dialect_names(ast.parse(code)) == expected
