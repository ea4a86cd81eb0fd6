"""The Response object: the members that repeat the request, and those of the answer."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from uuid import uuid4

from lmi_core.errors import LmiError
from lmi_core.generation.output import FinishReason
from lmi_handlers.chat.schema import JsonObject
from lmi_handlers.responses.request import ResponsesRequest
from lmi_handlers.responses.tools import listed_tools

# Members that only OpenAI's own service fills.
UNUSED = (
    "access_programs",
    "conversation",
    "image",
    "input_transformations",
    "moderation",
    "prompt",
    "prompt_cache_diagnostics",
    "prompt_cache_options",
    "prompt_cache_retention",
    "tool_usage",
)
STATUSES = MappingProxyType[FinishReason, str](
    {
        "length": "incomplete",
        "eos_token": "completed",
        "stop_sequence": "completed",
        "error": "failed",
        "abort": "cancelled",
    }
)

Keep = Callable[[bytes, Sequence[str]], None]  # stores the Response object under the ids of its items


@dataclass(frozen=True, slots=True)
class ResponseFacts:
    """The facts about a request for its output formatter, in addition to those about the chat."""

    members: JsonObject  # members that repeat the request
    request_id: str = ""
    key: str | None = None  # the holder of the API key that it belongs to
    keep: Keep = lambda response, item_ids: None  # of one that is not stored
    functions: Mapping[str, JsonObject] = field(default_factory=dict)  # members of their calls, by name in the chat
    response_id: str = field(default_factory=lambda: f"resp_{uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def response(
        self, status: str, output: Sequence[JsonObject], usage: JsonObject | None = None, error: LmiError | None = None
    ) -> JsonObject:
        """Return the Response object."""
        return {
            "id": self.response_id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "completed_at": int(time.time()) if status == "completed" else None,
            "error": error and {"code": "server_error", "message": error.message},
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            **self.members,
            "output": output,
            "usage": usage,
        }


def request_members(payload: ResponsesRequest, model: str) -> JsonObject:
    """Return the members that repeat the request, with defaults for missing fields."""
    reasoning, text = payload.reasoning, payload.text
    text_format = text.format.model_dump(by_alias=True, exclude_none=True) if text and text.format else {"type": "text"}
    return {
        "model": model,
        "background": False,
        "frequency_penalty": payload.frequency_penalty or 0.0,
        "instructions": payload.instructions,
        "max_output_tokens": payload.max_output_tokens or payload.max_tokens,
        "max_tool_calls": payload.max_tool_calls,
        "metadata": payload.metadata or {},
        "parallel_tool_calls": payload.parallel_tool_calls is not False,
        "presence_penalty": payload.presence_penalty or 0.0,
        "previous_response_id": payload.previous_response_id,
        "prompt_cache_key": payload.prompt_cache_key,
        "reasoning": {
            "effort": reasoning.effort if reasoning else None,
            "summary": (reasoning.summary or reasoning.generate_summary) if reasoning else None,
        },
        "safety_identifier": payload.safety_identifier,
        "service_tier": "default",
        "temperature": 1.0 if payload.temperature is None else payload.temperature,
        "text": {"format": text_format, "verbosity": (text and text.verbosity) or "medium"},
        "tool_choice": payload.tool_choice.listed() if payload.tool_choice else "auto",
        "tools": listed_tools(payload.tools or ()),
        "top_logprobs": payload.top_logprobs or 0,
        "top_p": 1.0 if payload.top_p is None else payload.top_p,
        "truncation": payload.truncation or "disabled",
        "user": payload.user,
        **dict.fromkeys(UNUSED),
    }


def usage(counts: JsonObject) -> JsonObject:
    """Return a chat's token counts in the form of responses."""
    cached = (counts.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    reasoning = (counts.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
    return {
        "input_tokens": counts["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": counts["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": counts["total_tokens"],
    }
