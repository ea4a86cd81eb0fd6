"""The names that are listed for hosts without vLLM, beside those of the vLLM that is installed."""

from lmi_plugins.backends.vllm_properties import NOT_PASSED_THROUGH
from lmi_plugins.vllm_engine.arguments.former import FORMER_ARGUMENTS, REPLACEMENTS, WITHOUT_REPLACEMENT
from lmi_plugins.vllm_engine.arguments.names import ENGINE_ARGUMENTS
from lmi_plugins.vllm_engine.arguments.parsing import argument_names


def test_the_list_is_that_of_the_installed_vllm() -> None:
    assert argument_names() - NOT_PASSED_THROUGH == ENGINE_ARGUMENTS


def test_former_arguments_are_former_ones() -> None:
    assert FORMER_ARGUMENTS.isdisjoint(argument_names())
    assert REPLACEMENTS.keys().isdisjoint(WITHOUT_REPLACEMENT)


def test_replacements_are_arguments() -> None:
    replaced = {name for replacement in REPLACEMENTS.values() for name in replacement("true")}
    assert replaced <= argument_names()
