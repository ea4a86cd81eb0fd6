"""The command lines of processes."""

import psutil


def command_line(process: psutil.Process) -> list[str]:
    """Return a process's arguments; nothing for one that has ended, whether anyone has waited for it or not."""
    try:
        return list(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []
