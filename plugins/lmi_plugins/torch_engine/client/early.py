"""Facts about the torch engine that are known before its plugin is imported, for an early start of its worker."""

from importlib.util import find_spec

from lmi_core.host.devices import visible_gpus

BACKEND = "torch"
ALIASES = ("scheduler", "hf-accelerate")  # LMI's name of continuous batching on transformers, and a former engine's
BEST = ("auto", "disable")  # values that select the best backend, which vLLM is where it runs
TARGET = "lmi_plugins.torch_engine.worker.start:run"
PREPARE = "lmi_plugins.torch_engine.worker.start:prepare"
ENVIRONMENT = {
    # OpenMP's threads otherwise wait in a loop: with as many threads as cores that costs more than all the rest as soon
    # as anything else, such as the server itself, wants a core. GNU's may wait so for some microseconds, as long as it
    # is mostly until the next operation: that is a third faster than to sleep and be woken.
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "1000",
    # glibc otherwise gives logits and activations back to the system at each step, and takes them anew page by page.
    "MALLOC_MMAP_THRESHOLD_": str(64 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",  # drawn for a terminal, and this goes to a log
}


def is_selected(rolling_batch: str) -> bool:
    """Return whether option.rolling_batch selects this engine; False where only vLLM's own checks can tell."""
    if rolling_batch in BEST:
        return find_spec("vllm") is None or visible_gpus() == 0
    return rolling_batch in (BACKEND, *ALIASES)
