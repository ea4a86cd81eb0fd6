"""What vLLM's own processes do besides. Each runs `prepare` when it starts: vLLM finds it as a plugin of its own."""

import multiprocessing
import os
import threading
from multiprocessing.process import BaseProcess

SERVER_VARIABLE = "LMI_VLLM"  # in the environment of this server's; other users of vLLM are left as they are


def prepare() -> None:
    parent = multiprocessing.parent_process()
    if parent is None or SERVER_VARIABLE not in os.environ:
        return
    from lmi_plugins.vllm_engine.cpu_adapters import mend_adapters

    attach(parent)
    mend_adapters()


def attach(parent: BaseProcess) -> None:
    """The process ends with its parent, and not before: its own group keeps the terminal's Ctrl-C from it.

    Not a session of its own: Linux shares the time of a busy machine among sessions, and those that wait for each
    other step by step are best in one.
    """
    os.setpgid(0, 0)
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()


def _exit_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
