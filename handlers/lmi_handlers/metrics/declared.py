"""Every metric of the server: its name, its kind, its labels and its meaning."""

from typing import Literal, NamedTuple

import msgspec

Kind = Literal["counter", "gauge", "histogram"]

OPEN_METRICS = "application/openmetrics-text"
MODEL = ("model", "version")
ADAPTER = (*MODEL, "adapter")


class Scrape(msgspec.Struct):
    """The contents of a scrape request."""

    accepted: str = ""  # the `Accept` header, which chooses the content type
    names: frozenset[str] = frozenset()  # of samples, such as `lmi_requests_total`; without any, all
    as_vllm: bool = False  # under vLLM's names


class DeclaredMetric(NamedTuple):
    """A family of metrics; a counter's samples have the suffix `_total`."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    of_engine: bool = False  # front ends that share an engine have the same value, or values cannot be added

    @property
    def sample(self) -> str:
        """The name of the samples in Prometheus, or the prefix of a histogram's."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


def _counter(name: str, help: str, labels: tuple[str, ...] = MODEL, *, of_engine: bool = False) -> DeclaredMetric:
    return DeclaredMetric(name, "counter", labels, help, of_engine)


def _gauge(name: str, help: str, labels: tuple[str, ...] = MODEL, *, of_engine: bool = False) -> DeclaredMetric:
    return DeclaredMetric(name, "gauge", labels, help, of_engine)


def _histogram(name: str, help: str) -> DeclaredMetric:
    return DeclaredMetric(name, "histogram", MODEL, help)


REQUESTS = _counter(
    "lmi_requests",
    "Finished requests, by status and reason: a finish reason or the kind of an error.",
    (*ADAPTER, "dialect", "status", "reason"),
)
REJECTED = _counter(
    "lmi_requests_rejected",
    "Requests refused for reasons other than an error in the request, such as a full queue. "
    "Starts at 0 for each reason but rate_limited.",
    (*MODEL, "reason"),
)
ABORTED = _counter(
    "lmi_requests_aborted",
    "Requests aborted before their answer was complete: by their client, by another client or by a time limit.",
    (*MODEL, "reason"),
)
PROMPT_TOKENS = _counter("lmi_prompt_tokens", "Prompt tokens of requests that reached the engine.", ADAPTER)
GENERATED_TOKENS = _counter(
    "lmi_generated_tokens",
    "Generated tokens, including those of failed and aborted answers.",
    ADAPTER,
)
CACHED_TOKENS = _counter("lmi_cached_prompt_tokens", "Prompt tokens found in the engine's prefix cache.", ADAPTER)

QUEUE_TIME = _histogram(
    "lmi_queue_time_seconds", "Time that a request waited for the model to load, in the queue, and in the engine."
)
TIME_TO_FIRST_TOKEN = _histogram(
    "lmi_time_to_first_token_seconds", "Time from a request's headers to its first generated token."
)
TIME_PER_TOKEN = _histogram(
    "lmi_time_per_output_token_seconds", "Mean time between two tokens of a sequence, one value per request."
)
END_TO_END = _histogram("lmi_request_duration_seconds", "Time from a request's headers to the end of its answer.")
ENGINE_TIME = _counter(
    "lmi_engine_time_seconds",
    "Part of lmi_request_duration_seconds_sum in which the engine works on a request, until its last output.",
)
SERVER_TIME = _counter(
    "lmi_server_time_seconds",
    "Part of lmi_request_duration_seconds_sum spent in the server itself, to read, parse and "
    "tokenize a request and to send the end of its answer.",
)

READY = _gauge(
    "lmi_model_ready",
    "1 while the model accepts requests, also if idle; 0 while it loads, its engine restarts, or max_worker is 0.",
    of_engine=True,
)
IN_FLIGHT = _gauge("lmi_requests_in_flight", "Places taken in the model's queue; a request takes one per sequence.")
QUEUE_SIZE = _gauge(
    "lmi_queue_size",
    "Capacity of the model's queue: job_queue_size plus the number of requests that can run at the same time.",
)
RUNNING = _gauge(
    "lmi_requests_running",
    "Sequences that the engine is generating, or requests that the model function is processing.",
)
WAITING = _gauge("lmi_requests_waiting", "Sequences that wait in the queue or in the engine.")
CACHE_USAGE = _gauge(
    "lmi_cache_usage_ratio", "Share of the engine's KV cache that is in use, from 0 to 1.", of_engine=True
)
PREFIX_QUERIES = _counter(
    "lmi_prefix_cache_queries", "Prompt tokens that the engine looked for in its prefix cache.", of_engine=True
)
PREFIX_HITS = _counter(
    "lmi_prefix_cache_hits", "Prompt tokens that the engine found in its prefix cache.", of_engine=True
)
RESTARTS = _counter("lmi_worker_restarts", "Restarts of engines or workers that died.", of_engine=True)
WORKERS = _gauge(
    "lmi_workers",
    "Engines that accept requests, if the model can have several, or processes that run the model function.",
    of_engine=True,
)
WORKER_SEQUENCES = _gauge(
    "lmi_worker_sequences",
    "Sequences in each engine, running or waiting, if the model can have several.",
    (*MODEL, "worker"),
)
INFO = _gauge("lmi_server_info", "1, with the version of the server.", ("version",), of_engine=True)

OWN_METRICS = (
    REQUESTS, REJECTED, ABORTED, PROMPT_TOKENS, GENERATED_TOKENS, CACHED_TOKENS,
    QUEUE_TIME, TIME_TO_FIRST_TOKEN, TIME_PER_TOKEN, END_TO_END, ENGINE_TIME, SERVER_TIME,
    READY, IN_FLIGHT, QUEUE_SIZE, RUNNING, WAITING, CACHE_USAGE, PREFIX_QUERIES, PREFIX_HITS, RESTARTS, WORKERS,
    WORKER_SEQUENCES, INFO,
)  # fmt: skip

# DJLServing's names, labels and units.
HOST = ("Host",)
DJL_MODEL = ("Model",)
RESPONSE_2XX = _counter("Response_2XX", "DJLServing's: requests answered with a status of 2xx.", HOST)
RESPONSE_4XX = _counter("Response_4XX", "DJLServing's: requests answered with a status of 4xx.", HOST)
RESPONSE_5XX = _counter("Response_5XX", "DJLServing's: requests answered with a status of 5xx.", HOST)
SERVER_ERROR = _counter("ServerError", "DJLServing's: requests that failed with an unexpected error.", HOST)
WLM_ERROR = _counter(
    "WlmError", "DJLServing's: requests refused because the queue was full or no model was ready.", HOST
)
LATEST_QUEUE_TIME = _gauge(
    "QueueTime", "DJLServing's: microseconds the latest request waited.", DJL_MODEL, of_engine=True
)
LATEST_LATENCY = _gauge(
    "RequestLatency", "DJLServing's: microseconds the latest request took.", DJL_MODEL, of_engine=True
)
LATEST_TOKEN_LATENCY = _gauge(
    "TokenLatency", "DJLServing's: microseconds per generated token of the latest request.", DJL_MODEL, of_engine=True
)
LATEST_THROUGHPUT = _gauge(
    "TokenThroughput", "DJLServing's: generated tokens per second of the latest request.", DJL_MODEL, of_engine=True
)
LATEST_TOKENS = _gauge(
    "OutputTokens", "DJLServing's: generated tokens of the latest request.", DJL_MODEL, of_engine=True
)
ROLLING_BATCH_SIZE = _gauge("RollingBatchSize", "DJLServing's: sequences that the engine is generating.", DJL_MODEL)

DJL_METRICS = (
    RESPONSE_2XX, RESPONSE_4XX, RESPONSE_5XX, SERVER_ERROR, WLM_ERROR, LATEST_QUEUE_TIME, LATEST_LATENCY,
    LATEST_TOKEN_LATENCY, LATEST_THROUGHPUT, LATEST_TOKENS, ROLLING_BATCH_SIZE,
)  # fmt: skip
