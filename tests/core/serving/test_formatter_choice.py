import pytest

from lmi_core.configuration.properties import RequestProperties
from lmi_core.errors import ConfigurationError
from lmi_core.formatter import FormatterNames
from lmi_core.plugins.loading import load_plugins
from lmi_core.serving.formatter_choice import resolve, resolve_chat

FORMATTERS = load_plugins().formatters


@pytest.mark.parametrize(
    ("formatter", "tgi_compat", "enable_streaming", "whole", "stream"),
    [
        (None, False, False, "json", "jsonlines"),
        (None, False, True, "jsonlines", "jsonlines"),
        (None, True, False, "tgi_json", "tgi_sse"),
        (None, True, True, "tgi_sse", "tgi_sse"),
        ("json", False, False, "json", "json"),
        ("json", False, True, "json", "json"),
        ("json", True, False, "tgi_json", "tgi_json"),
        ("json", True, True, "tgi_json", "tgi_json"),
        ("jsonlines", False, False, "jsonlines", "jsonlines"),
        ("jsonlines", False, True, "jsonlines", "jsonlines"),
        ("jsonlines", True, False, "tgi_jsonlines", "tgi_jsonlines"),
        ("jsonlines", True, True, "tgi_jsonlines", "tgi_jsonlines"),
        ("sse", False, False, "sse", "sse"),
        ("sse", False, True, "sse", "sse"),
        ("sse", True, False, "tgi_sse", "tgi_sse"),
        ("sse", True, True, "tgi_sse", "tgi_sse"),
        ("mine", False, False, "mine", "mine"),
        ("mine", False, True, "mine", "mine"),
        ("mine", True, False, "mine", "mine"),
        ("mine", True, True, "mine", "mine"),
    ],
)
def test_rolling_batch(
    formatter: str | None,
    tgi_compat: bool,
    enable_streaming: bool,
    whole: str,
    stream: str,
) -> None:
    chosen = {"output_formatter": formatter, "tgi_compat": tgi_compat, "enable_streaming": enable_streaming}
    assert resolve(RequestProperties.model_validate(chosen), FORMATTERS) == FormatterNames(whole, stream)


@pytest.mark.parametrize(
    "mode",
    [{"async_mode": True}, {"entry_point": "djl_python.lmi_vllm.vllm_async_service"}],
    ids=["mode", "entry_point"],
)
@pytest.mark.parametrize("rolling_batch", ["auto", "disable"])
@pytest.mark.parametrize(
    ("formatter", "whole", "stream"),
    [(None, "async_json", "async_jsonlines"), ("mine", "mine", "mine")],
)
def test_asynchronous_mode(
    mode: dict[str, object], rolling_batch: str, formatter: str | None, whole: str, stream: str
) -> None:
    options = RequestProperties.model_validate({**mode, "rolling_batch": rolling_batch, "output_formatter": formatter})
    assert resolve(options, FORMATTERS) == FormatterNames(whole, stream)


@pytest.mark.parametrize(
    ("formatter", "enable_streaming", "whole", "stream"),
    [
        (None, False, "dynamic_json", "dynamic_jsonlines"),
        (None, True, "dynamic_jsonlines", "dynamic_jsonlines"),
        ("json", False, "dynamic_json", "dynamic_jsonlines"),
        ("json", True, "dynamic_jsonlines", "dynamic_jsonlines"),
        ("jsonlines", False, "dynamic_jsonlines", "dynamic_jsonlines"),
        ("jsonlines", True, "dynamic_jsonlines", "dynamic_jsonlines"),
        ("mine", False, "mine", "mine"),
        ("mine", True, "mine", "mine"),
    ],
)
@pytest.mark.parametrize("entry_point", [None, "djl_python.huggingface"])
def test_dynamic_batch(
    formatter: str | None, enable_streaming: bool, whole: str, stream: str, entry_point: str | None
) -> None:
    given = {"output_formatter": formatter, "enable_streaming": enable_streaming, "entry_point": entry_point}
    options = RequestProperties.model_validate({"rolling_batch": "disable", **given})
    assert resolve(options, FORMATTERS) == FormatterNames(whole, stream)


@pytest.mark.parametrize("enable_streaming", [False, True])
@pytest.mark.parametrize("formatter", [None, "json", "jsonlines", "sse", "mine"])
def test_dynamic_batch_knows_no_tgi_schema(formatter: str | None, enable_streaming: bool) -> None:
    options = RequestProperties(
        rolling_batch="disable", tgi_compat=True, output_formatter=formatter, enable_streaming=enable_streaming
    )
    with pytest.raises(ConfigurationError, match=r"^option\.tgi_compat=true needs rolling batch"):
        resolve(options, FORMATTERS)


@pytest.mark.parametrize("enable_streaming", [False, True])
def test_dynamic_batch_knows_no_server_sent_events(enable_streaming: bool) -> None:
    options = RequestProperties(rolling_batch="disable", output_formatter="sse", enable_streaming=enable_streaming)
    with pytest.raises(ConfigurationError, match=r"^option\.output_formatter=sse needs rolling batch.* use jsonlines$"):
        resolve(options, FORMATTERS)


@pytest.mark.parametrize(
    ("formatter", "enable_streaming", "whole", "stream"),
    [
        (None, False, "lmi_chat", "lmi_chat_jsonlines"),
        (None, True, "lmi_chat_jsonlines", "lmi_chat_jsonlines"),
        ("json", False, "lmi_chat", "lmi_chat"),
        ("json", True, "lmi_chat", "lmi_chat"),
        ("jsonlines", False, "lmi_chat_jsonlines", "lmi_chat_jsonlines"),
        ("jsonlines", True, "lmi_chat_jsonlines", "lmi_chat_jsonlines"),
        ("sse", False, "lmi_chat_sse", "lmi_chat_sse"),
        ("sse", True, "lmi_chat_sse", "lmi_chat_sse"),
        ("mine", False, "mine", "mine"),
        ("mine", True, "mine", "mine"),
    ],
)
@pytest.mark.parametrize("rolling_batch", ["auto", "disable"])
@pytest.mark.parametrize("tgi_compat", [False, True])
def test_chat(
    formatter: str | None, enable_streaming: bool, whole: str, stream: str, rolling_batch: str, tgi_compat: bool
) -> None:
    options = RequestProperties(
        rolling_batch=rolling_batch,
        tgi_compat=tgi_compat,
        output_formatter=formatter,
        enable_streaming=enable_streaming,
    )
    assert resolve_chat(options, FORMATTERS) == FormatterNames(whole, stream, everywhere=formatter not in (None, "sse"))
