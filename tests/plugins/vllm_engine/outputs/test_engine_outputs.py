"""vLLM's outputs and errors as generation steps, with a scripted engine."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any, cast

import pytest
from vllm.config import ObservabilityConfig

from lmi_core.errors import GenerationFailed, InvalidParameter
from lmi_plugins.vllm_engine.engine import VllmEngine
from lmi_plugins.vllm_engine.library import EngineDeadError, RequestOutput, SamplingParams, token_prompt


class Vllm:
    """Stands for AsyncLLM and for what it hands a request's outputs over in."""

    errored = False
    observability_config = ObservabilityConfig()

    def __init__(self, *outputs: Exception | bool, refusal: Exception | None = None) -> None:
        """Take scripted outputs: for each, whether it is the last, or an error to raise."""
        self._outputs = list(outputs)
        self._refusal = refusal
        self.aborted: list[str] = []

    async def add_request(self, *_: object, **__: object) -> "Vllm":
        if self._refusal is not None:
            raise self._refusal
        return self

    def get_nowait(self) -> None:
        return None

    async def get(self) -> SimpleNamespace:
        output = self._outputs.pop(0)
        if isinstance(output, Exception):
            raise output
        return SimpleNamespace(finished=output, outputs=[SimpleNamespace(token_ids=[1])])

    async def abort(self, request_id: str) -> None:
        self.aborted.append(request_id)


def generation(vllm: Vllm, engine: VllmEngine | None = None) -> AsyncGenerator[RequestOutput, None]:
    engine = engine or VllmEngine({}, 3)
    engine._supervisor._running = cast("Any", vllm)
    return engine.generate(token_prompt([1]), SamplingParams(detokenize=False))


async def test_a_request_that_was_answered_begins_a_new_row_of_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, vllm, rows = VllmEngine({}, 3), Vllm(False, True), []
    monkeypatch.setattr(engine.restarts, "reset_count", lambda: rows.append(1))
    async with aclosing(generation(vllm, engine)) as outputs:
        assert not (await anext(outputs)).finished
        assert rows == []
        assert (await anext(outputs)).finished  # and nobody asks for more
    assert (rows, vllm.aborted) == ([1], [])


async def test_a_request_that_is_left_is_aborted() -> None:
    vllm = Vllm(False, False)
    async with aclosing(generation(vllm)) as outputs:
        await anext(outputs)
    assert vllm.aborted == ["0"]


@pytest.mark.parametrize(
    ("vllm", "kind", "message"),
    [
        (Vllm(refusal=ValueError("too\nlong")), InvalidParameter, "vLLM refuses the request: too long"),
        (Vllm(False, ValueError("odd")), GenerationFailed, "vLLM failed to process the request: odd"),
        (Vllm(False, KeyError("gone")), GenerationFailed, "vLLM failed to process the request: 'gone'"),
        (Vllm(False, EngineDeadError()), GenerationFailed, "the request was lost: vLLM's engine died"),
        (Vllm(refusal=EngineDeadError()), GenerationFailed, "the request was lost: vLLM's engine died"),
    ],
)
async def test_errors(vllm: Vllm, kind: type[Exception], message: str) -> None:
    async with aclosing(generation(vllm)) as outputs:
        with pytest.raises(kind, match=f"^{message}$"):
            _ = [output async for output in outputs]
