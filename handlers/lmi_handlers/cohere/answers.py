"""The types of the answers on Cohere's routes for embeddings."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from lmi_core.calls.answer_form import AnswerForm, failures
from lmi_handlers.answers.openai import STATUSES

VectorsByType = TypedDict(
    "VectorsByType",
    {
        "float": NotRequired[list[list[float]]],
        "base64": NotRequired[list[str]],
        "binary": NotRequired[list[list[int]]],
        "ubinary": NotRequired[list[list[int]]],
    },
)
CohereVersion = TypedDict("CohereVersion", {"version": Literal["1", "2"]})
BilledUnits = TypedDict("BilledUnits", {"input_tokens": int, "image_tokens": int})
CohereMeta = TypedDict("CohereMeta", {"api_version": CohereVersion, "billed_units": BilledUnits})


class CohereHead(TypedDict):
    """The members of an answer besides its vectors."""

    id: str
    texts: NotRequired[list[str]]
    meta: CohereMeta


class CohereVectors(CohereHead):
    """The vectors of texts in each requested type."""

    response_type: Literal["embeddings_by_type"]
    embeddings: VectorsByType


class CohereFloats(CohereHead):
    """The vectors of texts, if a request to the first version of the API names no type."""

    response_type: Literal["embeddings_floats"]
    embeddings: list[list[float]]


CohereError = TypedDict("CohereError", {"message": str})
BY_TYPE = AnswerForm(CohereVectors)
FLOATS = AnswerForm(CohereFloats)
ERRORS = (failures(CohereError, *STATUSES),)
