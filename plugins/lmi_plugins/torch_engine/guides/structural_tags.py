"""The formats within structural tags, with the JSON that other guides of this engine give."""

import json
from collections.abc import Callable
from typing import Any

from lmi_plugins.torch_engine.guides.json_schema import check_schema

PLAIN = {"type", "json_schema", "style"}  # what a format may have that says no more than which schema


def with_json_grammars(form: Any, json_grammar: Callable[[str], str]) -> Any:
    """Return the format with a grammar for each JSON schema in it. Raise ValueError for a keyword not kept to."""
    if isinstance(form, list):
        return [with_json_grammars(each, json_grammar) for each in form]
    if not isinstance(form, dict):
        return form
    if form.get("type") == "json_schema":
        return _json_format(form, json_grammar)
    return {name: with_json_grammars(value, json_grammar) for name, value in form.items()}


def _json_format(form: dict[str, Any], json_grammar: Callable[[str], str]) -> dict[str, Any]:
    schema = form.get("json_schema")
    check_schema(schema)
    if not isinstance(schema, dict) or form.get("style", "json") != "json" or form.keys() - PLAIN:
        return form
    return {"type": "grammar", "grammar": json_grammar(json.dumps(schema))}
