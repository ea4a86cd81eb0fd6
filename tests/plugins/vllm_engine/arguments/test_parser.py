"""Names of vLLM's engine arguments that its parser does not provide."""

import argparse

import pytest

from lmi_plugins.vllm_engine.arguments.parser import argument_names, engine_parser


def test_every_argument_is_declared() -> None:
    """Fails when vLLM adds arguments in a way that is not seen."""
    assert vars(engine_parser().parser.parse_args([])).keys() <= argument_names()


@pytest.mark.parametrize("words", [["--seed=many"], ["--no-such-argument"], ["--dtype"]])
def test_a_wrong_argument_raises(words: list[str]) -> None:
    with pytest.raises(argparse.ArgumentError):
        engine_parser().parser.parse_args(words)
