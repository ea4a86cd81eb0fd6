"""The vLLM backend reads every parameter, or refuses it."""

import ast
from pathlib import Path

import lmi_plugins
from lmi_core.generation.parameters import GUIDES, ExtendedParameters
from lmi_plugins.backends.vllm import VllmBackend

ENGINE = Path(lmi_plugins.__file__).parent / "vllm_engine"
# Parameters that the core reads, most of them through properties such as `num_sequences` and `wants_prefill`.
READ_BY_THE_CORE = {
    "n",
    "best_of",
    "details",
    "decoder_input_details",
    "return_full_text",
    "top_n_tokens",
    "truncate",
    "truncation_side",
}
READ_FOR_BOTH_ENGINES = {*GUIDES, "guided_reasoning"}  # by guide_of


def test_every_parameter_is_read_or_refused() -> None:
    codes = [ast.parse(source.read_text(encoding="utf-8")) for source in ENGINE.rglob("*.py")]
    read = {node.attr for code in codes for node in ast.walk(code) if isinstance(node, ast.Attribute)}
    obeyed = {name for name in ExtendedParameters.model_fields if VllmBackend.obeys(name)}
    assert obeyed - read == READ_BY_THE_CORE | READ_FOR_BOTH_ENGINES
