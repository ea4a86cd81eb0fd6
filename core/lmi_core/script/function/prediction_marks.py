"""Detection of a prediction handler in a Python file, without running it."""

import ast
from pathlib import Path

DECORATOR = "prediction_handler"


def has_prediction_handler(script: Path) -> bool:
    """Return whether a top-level function is decorated with `@prediction_handler`. Raise SyntaxError."""
    statements = ast.parse(script.read_bytes(), str(script)).body
    functions = (each for each in statements if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    return any(_is_mark(mark) for function in functions for mark in function.decorator_list)


def _is_mark(decorator: ast.expr) -> bool:
    name = decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", None)
    return name == DECORATOR
