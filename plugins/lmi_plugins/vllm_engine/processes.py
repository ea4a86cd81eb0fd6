"""What this project adds to vLLM's own processes: vLLM calls `prepare`, as its plugin, in each that it starts."""

import multiprocessing
import os
import threading
from multiprocessing.process import BaseProcess

SERVER_VARIABLE = "LMI_VLLM"  # set in the environment of this server's processes


def prepare() -> None:
    """Prepare a process of vLLM's for this server; the processes of other users of vLLM are left as they are."""
    parent = multiprocessing.parent_process()
    if parent is None or SERVER_VARIABLE not in os.environ:
        return
    from lmi_plugins.vllm_engine.cpu_adapters import mend_adapters

    attach(parent)
    mend_adapters()


def attach(parent: BaseProcess) -> None:
    """End this process with its parent, and not before: a group of its own keeps the terminal's Ctrl-C from it.

    It gets no session of its own: Linux shares the time of a busy machine among sessions, and processes that wait for
    each other step by step are best in one.
    """
    os.setpgid(0, 0)
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()


def _exit_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
