"""The folder of the sockets of vLLM's processes, and of the files through which they connect."""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from uuid import uuid4

FOLDER_VARIABLE = "LMI_VLLM_FOLDER"  # environment variable of the processes: the folder, if this server created it
SOCKETS_VARIABLE = "VLLM_RPC_BASE_PATH"  # vLLM's variable for that folder

# VLLM's name of the file through which a core and its workers connect (PyTorch's FileStore)
MEETING_FILE = "vllm_dist_"
MEETING_METHOD = "get_file_store_init_method"  # vLLM's function that names the file
ITS_MODULES = ("vllm.utils.network_utils", "vllm.v1.executor.multiproc_executor", "vllm.v1.executor.uniproc_executor")


class SocketFolder:
    """The folder of vLLM's sockets, which exists while this process has engines, and can be removed as a whole."""

    def __init__(self) -> None:
        self._engines = 0

    def enter(self) -> None:
        """Create the folder for one more engine, unless the environment names another."""
        self._engines += 1
        own = os.environ.get(FOLDER_VARIABLE)
        if own is None and SOCKETS_VARIABLE not in os.environ:
            own = os.environ[FOLDER_VARIABLE] = os.environ[SOCKETS_VARIABLE] = tempfile.mkdtemp(prefix="lmi-")
        if own is not None:
            Path(own).mkdir(mode=0o700, exist_ok=True)

    def leave(self) -> None:
        """Remove the folder with the last engine."""
        self._engines -= 1
        if self._engines == 0:
            remove_sockets()


def remove_sockets() -> None:
    """Remove the folder of sockets, if it is this server's own."""
    if (own := os.environ.get(FOLDER_VARIABLE)) is not None:
        shutil.rmtree(own, ignore_errors=True)


def meet_in_folder() -> None:
    """Let the executors of this core connect to their workers through files that `remove_meeting_files` finds."""
    for module in map(sys.modules.get, ITS_MODULES):  # modules imported later take it from the first
        if hasattr(module, MEETING_METHOD):
            setattr(module, MEETING_METHOD, meeting_file)


def meeting_file() -> str:
    """Return the URL of a new file whose name identifies this process."""
    return f"file://{_folder() / f'{MEETING_FILE}{os.getpid()}_{uuid4().hex}'}"


def remove_meeting_files(core: int) -> None:
    """Remove the files of a core that has ended: PyTorch leaves them if a process is killed or exits immediately."""
    for path in _folder().glob(f"{MEETING_FILE}{core}_*"):
        path.unlink(missing_ok=True)


def _folder() -> Path:
    return Path(os.environ.get(FOLDER_VARIABLE) or tempfile.gettempdir())
