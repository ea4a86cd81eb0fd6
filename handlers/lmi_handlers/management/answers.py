"""The forms of the answers of management routes, by DJLServing's names and in its spelling."""

from typing import NotRequired

from typing_extensions import TypedDict

from lmi_handlers.lmi.adapters import ListedAdapter


class ListedModel(TypedDict):
    """A version of a model in a list."""

    modelName: str
    version: NotRequired[str]
    modelUrl: str
    status: str
    state: str
    default: bool
    loadedAtStartup: bool


ListedModels = TypedDict("ListedModels", {"models": list[ListedModel], "nextPageToken": NotRequired[str]})
ListedWorkflow = TypedDict("ListedWorkflow", {"workflowName": str, "version": NotRequired[str]})
ListedWorkflows = TypedDict("ListedWorkflows", {"workflows": list[ListedWorkflow], "nextPageToken": NotRequired[str]})
Device = TypedDict("Device", {"deviceType": str, "deviceId": int})


class ListedWorker(TypedDict):
    """A process of the model; the server's own process, without its memory, if the engine runs there."""

    id: int
    startTime: str
    status: str
    processId: int
    memoryUsage: NotRequired[int]
    node: NotRequired[str]
    sequences: NotRequired[int]


class WorkerGroup(TypedDict):
    """The workers on one device."""

    device: Device
    minWorkers: int
    maxWorkers: int
    workers: list[ListedWorker]


class DescribedModel(TypedDict):
    """A version of a model, with its current state."""

    modelName: str
    modelUrl: str
    batchSize: int
    maxBatchDelayMillis: int
    maxIdleSeconds: int
    queueSize: int
    requestInQueue: int
    status: str
    loadedAtStartup: bool
    workerGroups: list[WorkerGroup]
    state: str
    default: bool
    servedNames: list[str]
    backend: NotRequired[str]
    adapters: list[ListedAdapter]
    progress: NotRequired[str]
    reason: NotRequired[str]
    warnings: list[str]


class DescribedWorkflow(ListedWorkflow):
    """DJLServing's workflow, which has one model."""

    models: list[DescribedModel]
