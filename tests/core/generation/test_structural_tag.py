"""Structural tags in every form in which requests give them."""

import json
from typing import Any

import pytest

from lmi_core.errors import InvalidPayload
from lmi_core.generation.parameters import ExtendedParameters
from lmi_core.payloads.payload import check_payload

SCHEMA: dict[str, Any] = {"const": None}
STRUCTURES = [{"begin": "<a>", "schema": SCHEMA, "end": "</a>"}, {"begin": "<b>", "end": "</b>"}]
OLDER = {"type": "structural_tag", "structures": STRUCTURES, "triggers": ["<"]}
NEWER = {
    "type": "structural_tag",
    "format": {
        "type": "triggered_tags",
        "triggers": ["<"],
        "tags": [
            {
                "type": "tag",
                "begin": "<a>",
                "content": {"type": "json_schema", "json_schema": SCHEMA},
                "end": "</a>",
            },
            {"type": "tag", "begin": "<b>", "content": {"type": "json_schema", "json_schema": {}}, "end": "</b>"},
        ],
    },
}


def read(given: object) -> dict[str, Any] | None:
    return check_payload({"guided_structural_tag": given}, ExtendedParameters).guided_structural_tag


@pytest.mark.parametrize("given", [OLDER, NEWER, json.dumps(OLDER), json.dumps(NEWER), {"format": NEWER["format"]}])
def test_every_form_is_read_as_the_newer_one(given: object) -> None:
    assert read(given) == NEWER


def nested(depth: int) -> dict[str, Any]:
    return {"type": "optional", "content": nested(depth - 1)} if depth else {"type": "any_text"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "must be a structural tag, as an object or as JSON text. Given: 3"),
        ("[]", "must be a structural tag, as an object or as JSON text. Given: '[]'"),
        ("{", "must be a structural tag, as an object or as JSON text: "),
        ({}, "must have `format`, or `structures` and `triggers`. Given: {}"),
        (OLDER | NEWER, "must have `format`, or `structures` and `triggers`. Given: {"),
        ({"type": "json_schema", "format": {}}, 'must have the `type` "structural_tag". Given: {'),
        ({"format": "any_text"}, "must have an object as its `format`. Given: {"),
        ({"format": nested(300)}, "must be a structural tag with less nesting. Given: "),
        ({"structures": STRUCTURES}, "must have a valid `triggers`: Field required. Given: {"),
        ({"structures": [], "triggers": ["<"]}, "must have a valid `structures`: List should have at least 1 item"),
        ({"structures": [{"begin": "<"}], "triggers": ["<"]}, "must have a valid `structures.0.end`: Field required"),
    ],
)
def test_what_is_no_structural_tag(given: object, message: str) -> None:
    with pytest.raises(InvalidPayload) as raised:
        read(given)
    assert raised.value.message.startswith(f"`guided_structural_tag` {message}")
