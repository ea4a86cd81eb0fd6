"""A route that tells what is alive in the server's process. It looks at every object, so it is asked between loads."""

import asyncio
import ctypes
import gc
import json
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping

from lmi import Answer, Call, Generation, Handler, LmiError, OutputFormatter, Route, ServedModel, ServedModels, hookimpl

MALLINFO = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
PACKAGES = ("lmi_", "aiohttp", "asyncio", "uvloop", "grpc")


class Mallinfo(ctypes.Structure):
    """What glibc tells of its memory."""

    _fields_ = [(name, ctypes.c_size_t) for name in MALLINFO]


def allocated_bytes() -> int:
    """Return the bytes that the C library has given out and not got back."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Mallinfo
    found = mallinfo()
    return int(found.uordblks + found.hblkhd)


async def inside(call: Call, models: ServedModels) -> Answer:
    """Return the numbers of tasks by their coroutine, of threads, and of objects by their type, and memory in use."""
    gc.collect()
    tasks = Counter(getattr(task.get_coro(), "__qualname__", "?") for task in asyncio.all_tasks())
    types = Counter(type(each) for each in gc.get_objects())
    objects = {f"{kind.__module__}.{kind.__qualname__}": count for kind, count in types.items() if _is_ours(kind)}
    in_flight = getattr(models, "in_flight", None)  # of the dispatcher, which takes the part of the models
    threads = Counter(re.sub(r"[-_]?\d+", "", thread.name) for thread in threading.enumerate())
    memory = {"allocated": allocated_bytes(), "blocks": sys.getallocatedblocks()}
    found = {"tasks": tasks, "threads": threads, "objects": objects, "in_flight": in_flight, **memory}
    return Answer(200, "application/json", json.dumps(found).encode())


def _is_ours(kind: type) -> bool:
    return str(kind.__module__).startswith(PACKAGES) or kind.__name__ in ("async_generator", "coroutine", "generator")


class InsideHandler(Handler):
    """The dialect of the soak itself: one route, which generates nothing."""

    name = "inside"
    routes = (Route("/soak/inside", "GET", answer=inside),)

    def model_name(self, path_parameters: Mapping[str, str], headers: Mapping[str, str]) -> str | None:
        return None

    def parse(self, call: Call, model: ServedModel) -> Generation:
        raise NotImplementedError

    def error(self, error: LmiError, model: ServedModel | None, formatter: OutputFormatter | None) -> Answer:
        return Answer(500, "application/json", json.dumps({"error": error.message}).encode())


@hookimpl
def lmi_register_handlers(register: Callable[[type[Handler]], None]) -> None:
    """Register the handler."""
    register(InsideHandler)
