"""Processes by their command lines."""

import psutil


def command_line(process: psutil.Process) -> list[str]:
    """Return a process's arguments; nothing for one that has ended, whether anyone has waited for it or not."""
    try:
        return list(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def workers_of(server: psutil.Process) -> list[psutil.Process]:
    """Return the processes of the engines of a server, without the process from which they were forked."""
    workers, fork_servers = [], []
    for child in server.children(recursive=True):
        command = " ".join(command_line(child))
        if "lmi_core.workers.worker " in command:
            workers.append(child)
        elif "lmi_core.workers.prepared_workers" in command:
            fork_servers.append(child)
    return workers + [fork for each in fork_servers for fork in children(each)]


def children(process: psutil.Process) -> list[psutil.Process]:
    """Return the children of a process; none of one that has ended."""
    try:
        return process.children()
    except psutil.NoSuchProcess:
        return []
