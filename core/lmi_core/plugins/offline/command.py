"""`python -m djl_python.test_model`: one call of a model function, printed."""

import argparse

from lmi_core.logs.logs import configure_logging
from lmi_core.plugins.offline.handler import TestHandler
from lmi_core.plugins.offline.requests import create_request


def run() -> None:
    """Call the function given on the command line."""
    arguments = _parser().parse_args()
    configure_logging("info")
    handler = TestHandler(arguments.entry_point, arguments.model_dir)
    inputs = create_request(arguments.input, arguments.parameters)
    inputs.function_name = arguments.handler
    output = handler.inference(inputs)
    print(f"output: {output}")
    for value in output.content.values:
        print(bytes(value).decode(errors="replace"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("djl-test-model", description="Call a model function once, without a server.")
    parser.add_argument("--model-dir", default=".", help="The model directory.")
    parser.add_argument("--entry-point", default="model.py", help="The Python file of the model function, or a module.")
    parser.add_argument("--handler", default="handle", help="The function.")
    parser.add_argument(
        "--input",
        nargs="+",
        required=True,
        help="Contents of the input: files or strings, each with or without a leading name=.",
    )
    parser.add_argument("--parameters", nargs="*", help="Properties of the input, as name=value.")
    return parser
