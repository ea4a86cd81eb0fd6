"""Conversion of messages into the form of chats, which chat templates support."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from lmi_core.errors import InvalidPayload
from lmi_handlers.anthropic.blocks import ContentBlock
from lmi_handlers.anthropic.payload import CountTokensRequest
from lmi_handlers.chat import messages as chat

# Start of a text in Claude Code's system prompt that changes with each request, and so prevents prefix caching.
BILLING = "x-anthropic-billing-header"


class ImagePart(chat.ContentPart):
    """An image of a block, with the block's path in the client's request."""

    path: str


def chat_messages(payload: CountTokensRequest, *, system_first: bool = False) -> list[chat.Message]:
    """Return the messages of a chat; `system_first` moves all system messages to the start.

    Consecutive messages of one role are merged. Raise InvalidPayload if the assistant's last message cannot be
    continued.
    """
    messages = [*_system(payload.system or (), "system"), *_translate(payload)]
    if system_first:
        messages.sort(key=lambda message: message.role != "system")
    groups = [list(group) for _, group in groupby(messages, lambda message: message.role)]
    return _check_last([each for group in groups for each in (group if group[0].role == "tool" else [_join(group)])])


def _translate(payload: CountTokensRequest) -> Iterator[chat.Message]:
    for index, message in enumerate(payload.messages):
        path = f"messages.{index}.content"
        match message.role:
            case "system":
                yield from _system(message.content, path)
            case "user":
                yield from _user(message.content, path)
            case "assistant":
                yield _assistant(message.content)


def _system(blocks: Iterable[ContentBlock], path: str) -> Iterator[chat.Message]:
    parts = [part for part in _parts(blocks, path) if not (part.text or "").startswith(BILLING)]
    if parts:
        yield chat.Message(role="system", content=parts)


def _user(blocks: list[ContentBlock], path: str) -> Iterator[chat.Message]:
    for index, block in enumerate(blocks):
        if block.type == "tool_result":
            yield _tool_result(block, f"{path}.{index}.content")
    parts = list(_parts(blocks, path))
    if parts or not any(block.type == "tool_result" for block in blocks):
        yield chat.Message(role="user", content=parts)


def _tool_result(block: ContentBlock, path: str) -> chat.Message:
    further = {"is_error": True} if block.is_error else {}
    parts = list(_parts(block.content, path))
    return chat.Message.model_validate({"role": "tool", "content": parts, "tool_call_id": block.tool_use_id, **further})


def _assistant(blocks: list[ContentBlock]) -> chat.Message:
    """Return the message without redacted thinking, which is unreadable."""
    thinking = [block.thinking for block in blocks if block.type == "thinking" and block.thinking]
    calls: list[chat.AnyToolCall] = [_call(block) for block in blocks if block.type == "tool_use"]
    message = chat.Message(role="assistant", content=list(_parts(blocks, "")), tool_calls=calls or None)
    return _with_reasoning(message, "\n".join(thinking))


def _with_reasoning(message: chat.Message, reasoning: str) -> chat.Message:
    return message.model_copy(update={"reasoning_content": reasoning}) if reasoning else message


def _call(block: ContentBlock) -> chat.ToolCall:
    function = chat.FunctionCall.model_validate({"name": block.name, "arguments": block.input})
    return chat.ToolCall(id=block.id, function=function)


def _parts(blocks: Iterable[ContentBlock], path: str) -> Iterator[chat.ContentPart]:
    """Yield the texts and images of blocks, including those in documents."""
    for index, block in enumerate(blocks):
        match block.type:
            case "text":
                yield chat.ContentPart(type="text", text=block.text)
            case "tool_reference":  # its definition is in `tools`
                yield chat.ContentPart(type="text", text=block.tool_name)
            case "image":
                yield _image(block, f"{path}.{index}")
            case "document":
                yield from _document(block, f"{path}.{index}.source")


def _image(block: ContentBlock, path: str) -> ImagePart:
    assert block.source is not None
    url = block.source.url if block.source.type == "url" else block.source.data
    return ImagePart(type="image_url", image_url=chat.ImageUrl(url=str(url)), path=path)


def _document(block: ContentBlock, path: str) -> Iterator[chat.ContentPart]:
    assert block.source is not None
    for text in (block.title, block.context, block.source.data):
        if text:
            yield chat.ContentPart(type="text", text=text)
    yield from _parts(block.source.content or (), f"{path}.content")


def _join(messages: list[chat.Message]) -> chat.Message:
    if len(messages) == 1:
        return messages[0]
    reasoning = [getattr(each, "reasoning_content", None) for each in messages]
    message = chat.Message(
        role=messages[0].role,
        content=[part for each in messages for part in each.content or ()],
        tool_calls=[call for each in messages for call in each.tool_calls or ()] or None,
    )
    return _with_reasoning(message, "\n".join(filter(None, reasoning)))


def _check_last(messages: list[chat.Message]) -> list[chat.Message]:
    last = messages[-1] if messages else None
    if last is None or last.role != "assistant":
        return messages
    if last.tool_calls:
        raise InvalidPayload("`messages` must not end with a tool_use: its tool_result must follow")
    if last.text:
        return messages
    if getattr(last, "reasoning_content", None):
        raise InvalidPayload("`messages` must not end with thinking alone: an answer can only continue a text")
    return messages[:-1]  # nothing to continue: start a new answer
