"""The types of Ollama's answers."""

from typing_extensions import TypedDict

from lmi_core.calls.answer_form import TEXT, AnswerForm, client_type, failures, streamed

LINES = "application/x-ndjson"


class OllamaError(TypedDict):
    """An error in Ollama's form."""

    error: str


class OllamaVersion(TypedDict):
    """The version of Ollama's API."""

    version: str


class OllamaStatus(TypedDict):
    """A step of a pull."""

    status: str


OllamaGenerateAnswer = client_type("GenerateResponse", "An answer to a prompt, or a line of one, as in Ollama's API.")
OllamaChatAnswer = client_type("ChatResponse", "An answer to a chat, or a line of one, as in Ollama's API.")
OllamaVectorsAnswer = client_type("EmbedResponse", "The vectors of texts, as in Ollama's API.")
OllamaVectorAnswer = client_type("EmbeddingsResponse", "The vector of a text, as in Ollama's API.")
OllamaTags = client_type("ListResponse", "The served models and their adapters, as in Ollama's API.")
OllamaProcesses = client_type("ProcessResponse", "The models that are loaded, as in Ollama's API.")
OllamaShown = client_type("ShowResponse", "The description of a model, as in Ollama's API.")
GENERATED = (AnswerForm(OllamaGenerateAnswer), *streamed(OllamaGenerateAnswer | OllamaError, LINES))
CHATTED = (AnswerForm(OllamaChatAnswer), *streamed(OllamaChatAnswer | OllamaError, LINES))
PULLED = (AnswerForm(OllamaStatus), *streamed(OllamaStatus, LINES))
REFUSED = (failures(OllamaError, 403),)
GREETING = (AnswerForm(None, TEXT),)
ERRORS = (failures(OllamaError, 400, 403, 404, 408, 413, 415, 424, 499, 500, 503, 504),)
