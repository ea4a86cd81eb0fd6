"""Each request's grammar is created by its own library, whichever the first one had."""

from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.structured_output import StructuredOutputManager

from lmi_plugins.vllm_engine.guide_libraries import mend_manager


class Library:
    """A library that creates its grammars as texts with its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def compile_grammar(self, guide: str) -> str:
        return f"{guide} by {self.name}"


def new_manager(*, mended: bool) -> Any:
    """Return a manager as vLLM's is, as far as it begins and creates grammars."""

    class Manager:
        def __init__(self) -> None:
            self.backend: Library | None = None
            self.started: list[str] = []
            self.executor = ThreadPoolExecutor(1)

        def grammar_init(self, request: Any) -> None:
            if request.structured_output_request is None:
                return
            if self.backend is None:
                self.backend = Library(request.sampling_params.structured_outputs._backend)
                self.started.append(self.backend.name)
            request.structured_output_request.grammar = self.executor.submit(self._create_grammar, request)

        def _create_grammar(self, request: Any) -> str:
            assert self.backend is not None
            return self.backend.compile_grammar(request.guide)

    if mended:
        mend_manager(Manager)
    return Manager()


def grammar(manager: Any, guide: str, library: str) -> str:
    parameters = SimpleNamespace(structured_outputs=SimpleNamespace(_backend=library))
    asked = SimpleNamespace(structured_output_request=SimpleNamespace(), sampling_params=parameters, guide=guide)
    manager.grammar_init(asked)
    found: Future[str] = asked.structured_output_request.grammar
    return found.result()


@pytest.mark.parametrize("mended", [False, True])
def test_requests_of_two_libraries(mended: bool) -> None:
    manager = new_manager(mended=mended)
    libraries = ["xgrammar", "guidance", "xgrammar", "guidance"]
    found = [grammar(manager, str(i), library) for i, library in enumerate(libraries)]
    assert found == [f"{i} by {library if mended else 'xgrammar'}" for i, library in enumerate(libraries)]
    assert manager.started == (["xgrammar", "guidance"] if mended else ["xgrammar"])


def test_a_request_without_a_guide() -> None:
    manager = new_manager(mended=True)
    manager.grammar_init(SimpleNamespace(structured_output_request=None, sampling_params=None))
    assert manager.backend is None


def test_vllm_has_what_is_mended() -> None:
    assert {"grammar_init", "_create_grammar"} <= vars(StructuredOutputManager).keys()
