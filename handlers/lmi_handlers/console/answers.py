"""The forms of the console's answers, in the spelling of the management routes."""

from typing import NotRequired

from typing_extensions import TypedDict

Worker = TypedDict("Worker", {"processId": int})  # runs a model's engine or function
# The current stage of loading a model, and the share of the bytes that is done, if known.
ShownProgress = TypedDict("ShownProgress", {"what": str, "share": float | None})


class ShownModel(TypedDict):
    """The current state of a version of a model; numbers of requests and tokens count since it was added."""

    modelName: str
    version: NotRequired[str]
    modelUrl: str
    state: str
    default: bool
    loadedAtStartup: bool
    loadedAt: float | None
    backend: NotRequired[str]
    reason: NotRequired[str]
    progress: NotRequired[ShownProgress]
    running: int
    waiting: int
    queueSize: int
    promptTokens: int
    generatedTokens: int
    requests: int
    failedRequests: int
    cacheUsage: float | None
    restarts: int
    workers: list[Worker]
    memory: int | None
    adapters: list[str]
    warnings: list[str]


# In bytes: main memory within the container's limit, and that of GPUs including what other processes use.
MainMemory = TypedDict("MainMemory", {"total": int | None, "free": int | None})
Gpu = TypedDict("Gpu", {"number": int, "name": str, "used": int, "total": int})
ShownMemory = TypedDict("ShownMemory", {"main": MainMemory, "gpus": list[Gpu], "server": int | None})


class ConsoleState(TypedDict):
    """Everything that the console shows except errors; the times are seconds since 1970.

    `unchangeable` is the reason why models can be neither loaded nor unloaded; null if they can be.
    """

    time: float
    clock: float
    startedAt: float
    version: str
    latestError: int
    unchangeable: str | None
    memory: ShownMemory
    models: list[ShownModel]


class ShownError(TypedDict):
    """An error of a request, or the last of several equal ones in a row."""

    number: int
    time: float
    model: str
    requestId: str
    path: str
    status: int
    kind: str
    ofServer: bool
    message: str
    count: int


ConsoleErrors = TypedDict("ConsoleErrors", {"errors": list[ShownError]})  # newest first
