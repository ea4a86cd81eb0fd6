"""Detection of errors that report a lack of memory."""

import signal

# By name, because torch, which defines the second, must not be imported here.
ERRORS = ("MemoryError", "OutOfMemoryError")
# Libraries for CPUs, and engines that report another process's error, only have a message.
WORDS = (
    "could not create a primitive",
    "not enough memory",
    "allocate memory",
    "out of memory",
    "No available memory for the cache blocks",  # this and the next two are vLLM's
    "less than desired GPU memory utilization",
    "larger than the available KV cache memory",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, by its type or message."""
    return any(each.__name__ in ERRORS for each in type(error).__mro__) or means_out_of_memory(str(error))


def means_out_of_memory(words: str) -> bool:
    """Return whether an engine's message means that memory ran out."""
    return any(text in words for text in (*ERRORS, *WORDS))


def killed_for_memory(exit_code: int) -> bool:
    """Return whether the system may have killed a process because memory ran out."""
    return exit_code == -signal.SIGKILL
