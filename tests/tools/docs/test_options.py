import re

from pydantic import Field

from lmi_core.configuration.properties import ModelProperties, Properties, RequestProperties, ServerProperties, keys_of
from tools.docs.options import document


class BackendProperties(ModelProperties):
    dtype: str = Field(default="auto", description="Type of the weights: a|b.")
    max_rolling_batch_size: int = Field(default=64, description="Most requests.")


TYPES: dict[str, type[Properties]] = {
    "server": ServerProperties,
    "handler": RequestProperties,
    "model": ModelProperties,
    "toy": BackendProperties,
}


def test_row() -> None:
    assert (
        "| `option.model_id`, `option.s3url` | text |  | `OPTION_MODEL_ID`, `OPTION_S3URL`, `HF_MODEL_ID` | The "
        "weights: a folder, an s3:// URL or a Hugging Face hub id. Default: the model directory. |\n"
    ) in document(TYPES)


def test_row_shows_other_spellings() -> None:
    assert "\n| `option.entryPoint`, `option.entrypoint`, `option.entry_point` | text | " in document(TYPES)


def test_tables_are_whole() -> None:
    rows = [line for line in document(TYPES).splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6}
    assert "Type of the weights: a\\|b." in rows[-1]


def test_documents_every_key() -> None:
    page = document(TYPES)
    keys = [key.key for properties_type in TYPES.values() for key in keys_of(properties_type)]
    assert [key for key in keys if f"| `{key}`" not in page] == []
