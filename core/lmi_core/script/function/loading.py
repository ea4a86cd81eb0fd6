"""Loading of a script in its worker: the import, the call without content, the adapters."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing

from lmi_core.errors import ConfigurationError, OutOfMemory
from lmi_core.host.out_of_memory import is_out_of_memory
from lmi_core.script.djl_names.inputs import input_of
from lmi_core.script.environment import missing_package_hint
from lmi_core.script.function.answers import replies
from lmi_core.script.function.protocol import OUT_OF_MEMORY, Head, Request
from lmi_core.script.function.script import REGISTER_ADAPTER, FunctionScript, description
from lmi_core.script.tracebacks import own_traceback


def load_function(script: FunctionScript, adapters: Mapping[str, Request], runner: asyncio.Runner) -> str | None:
    """Import the script, call its function without content, register the adapters.

    Return None, or the traceback of a call without content that failed: there are functions that do not support it, and
    some load their models with the first request instead. Raise ConfigurationError, or
    OutOfMemory, for any other failure.
    """
    try:
        script.load()
        failure = _initialize(script, runner)
        failures = [failure] if failure is not None else []
        for name, request in adapters.items() if REGISTER_ADAPTER in script.functions else ():
            try:
                runner.run(_check(script.call(REGISTER_ADAPTER, input_of(request.properties, request.content))))
            except Exception as error:
                if not failures:
                    raise
                failures.append(f"{REGISTER_ADAPTER} then failed for the adapter {name}\n{_explain(error, script)}")
    except (Exception, SystemExit) as error:  # a script may raise anything
        explained = f"{script.path} cannot be loaded\n{_explain(error, script)}"
        raise (OutOfMemory if is_out_of_memory(error) else ConfigurationError)(explained) from None
    return "\n".join(failures) or None


def _initialize(script: FunctionScript, runner: asyncio.Runner) -> str | None:
    """Call the function without content, and return the traceback if that failed, or None.

    Raise SystemExit and out-of-memory errors, which end the process.
    """
    try:
        runner.run(_check(script.initialize()))
    except Exception as error:
        if is_out_of_memory(error):
            raise
        script.initialization_error = description(error)
        return _explain(error, script)
    return None


async def _check(result: object) -> None:
    """Raise RuntimeError if a loading call was answered with an error, or MemoryError if memory ran out."""
    async with aclosing(replies(0, result)) as found:
        async for reply in found:
            if isinstance(reply, Head) and reply.code >= 400:
                words = b" ".join(value for _, value in reply.content).decode(errors="replace")
                kind = MemoryError if reply.code == OUT_OF_MEMORY else RuntimeError
                raise kind(f"the first call was answered with {reply.code}: {words}")


def _explain(error: BaseException, script: FunctionScript) -> str:
    directory = script.path.parent
    return own_traceback(error, directory) + missing_package_hint(error, directory)
