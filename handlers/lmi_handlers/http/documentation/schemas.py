"""JSON schemas of bodies and answers, for references in the OpenAPI document."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import TypeAdapter

JsonObject = dict[str, Any]

REFERENCE = "#/components/schemas/{model}"


class Schemas:
    """The schemas of several types, and the definitions of named types."""

    def __init__(self, types: Iterable[Any]) -> None:
        unique = list(dict.fromkeys(types))
        adapters = [(number, "validation", TypeAdapter(each)) for number, each in enumerate(unique)]
        found, definitions = TypeAdapter.json_schemas(adapters, ref_template=REFERENCE)  # type: ignore[arg-type]
        self._schemas: Mapping[Any, JsonObject] = {
            each: found[number, "validation"] for number, each in enumerate(unique)
        }
        self.definitions: JsonObject = definitions.get("$defs", {})

    def of(self, types: Iterable[Any]) -> JsonObject:
        """Return the schema of a value that has one of these types."""
        forms = [form for each in types for form in self._forms(each)]
        unique = [form for place, form in enumerate(forms) if form not in forms[:place]]
        return unique[0] if len(unique) == 1 else {"anyOf": unique}

    def _forms(self, each: Any) -> list[JsonObject]:
        schema = self._schemas[each]
        alternatives: list[JsonObject] = schema.get("anyOf", [schema])
        return alternatives if schema.keys() <= {"anyOf"} else [schema]
