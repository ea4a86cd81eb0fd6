"""The choice of the guide library for each request in a core.

vLLM chooses one for each, but uses the first request's library for all guides: so xgrammar gets schemas with features
that it silently ignores, such as `multipleOf`. The names that this depends on are in
https://github.com/vllm-project/vllm/blob/main/vllm/v1/structured_output/__init__.py
"""

import copy
import functools
import threading
from typing import Any

LIBRARIES = "lmi_libraries"  # an attribute of a manager


class Libraries:
    """The libraries started by a manager, by vLLM's names."""

    def __init__(self) -> None:
        self.by_name: dict[str | None, Any] = {}
        self.lock = threading.RLock()  # another thread may create a grammar before its library is recorded


def choose_library_by_request() -> None:
    """Patch the guide manager in this process."""
    from vllm.v1.structured_output import StructuredOutputManager

    mend_manager(StructuredOutputManager)


def mend_manager(manager: Any) -> None:
    """Make a manager class use the library of each request for its grammar."""
    begin, create = manager.grammar_init, manager._create_grammar

    @functools.wraps(begin)
    def grammar_init(self: Any, request: Any) -> None:
        if request.structured_output_request is None:
            return
        libraries, name = _libraries(self), _library(request)
        with libraries.lock:
            self.backend = libraries.by_name.get(name)  # None: vLLM will start it
            begin(self, request)
            libraries.by_name[name] = self.backend

    @functools.wraps(create)
    def create_grammar(self: Any, request: Any) -> Any:
        libraries = _libraries(self)
        with libraries.lock:
            own = copy.copy(self)
            own.backend = libraries.by_name.get(_library(request), self.backend)
        return create(own, request)

    manager.grammar_init, manager._create_grammar = grammar_init, create_grammar


def _libraries(manager: Any) -> Libraries:
    found: Libraries = manager.__dict__.setdefault(LIBRARIES, Libraries())
    return found


def _library(request: Any) -> str | None:
    return getattr(request.sampling_params.structured_outputs, "_backend", None)
