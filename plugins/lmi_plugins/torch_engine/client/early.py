"""Facts about the torch engine that are known before its plugin is imported, for an early start of its worker."""

from importlib.util import find_spec

from lmi_core.host.devices import visible_gpus

BACKEND = "torch"
# LMI's name for continuous batching with transformers, and that of a former engine
ALIASES = ("scheduler", "hf-accelerate")
BEST = ("auto", "disable")  # values that select the best backend, which is vLLM if it can run
TARGET = "lmi_plugins.torch_engine.worker.start:run"
PREPARE = "lmi_plugins.torch_engine.worker.start:prepare"
ENVIRONMENT = {
    # By default, idle OpenMP threads spin: with as many threads as cores, that costs more than everything else as soon
    # as another process, such as the server, needs a core. GNU's library may spin for a few microseconds, which usually
    # lasts until the next operation: that is a third faster than sleeping.
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "1000",
    # By default, glibc returns the memory of logits and activations to the system after each step, and then faults in
    # every page again.
    "MALLOC_MMAP_THRESHOLD_": str(64 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",  # progress bars are for terminals, and this output goes to a log
}


def is_selected(rolling_batch: str) -> bool:
    """Return whether option.rolling_batch selects this engine; False if only vLLM's own checks can decide."""
    if rolling_batch in BEST:
        return find_spec("vllm") is None or visible_gpus() == 0
    return rolling_batch in (BACKEND, *ALIASES)
