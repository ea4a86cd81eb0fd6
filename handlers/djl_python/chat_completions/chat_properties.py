"""`ChatProperties`: a chat's body; `Message`."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

__all__ = ["ChatProperties", "Message"]


class Message(BaseModel):
    """A message of a chat, for files that make or check their own."""

    model_config = ConfigDict(extra="allow")

    role: str
    content: str | list[dict[str, Any]] | None = None


class ChatProperties(BaseModel):
    """A chat's body. `model_dump(by_alias=True, exclude_none=True)` has the parameters by LMI's names."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    messages: list[dict[str, Any]]
    model: str | None = Field(None, exclude=True)
    frequency_penalty: float | None = Field(0.0, ge=-2, le=2)
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = Field(False, exclude=True)
    top_logprobs: int | None = Field(None, ge=0, le=20, serialization_alias="logprobs")
    max_tokens: int | None = Field(None, ge=1, serialization_alias="max_new_tokens")
    n: int | None = Field(1, exclude=True)
    presence_penalty: float | None = Field(0.0, ge=-2, le=2)
    seed: int | None = None
    stop: str | list[str] | None = Field(None, serialization_alias="stop_sequences")
    stream: bool | None = False
    temperature: float | None = Field(1.0, ge=0, le=2)
    top_p: float | None = 1.0
    user: str | None = Field(None, exclude=True)

    @field_validator("messages")
    @classmethod
    def _role_and_content(cls, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for message in messages:
            if not {"role", "content"} <= message.keys():
                raise ValueError(f"each message must have a `role` and a `content`. Given: {sorted(message)}")
        return messages

    @field_validator("stop")
    @classmethod
    def _stop_list(cls, stop: str | list[str] | None) -> list[str] | None:
        return [stop] if isinstance(stop, str) else stop
