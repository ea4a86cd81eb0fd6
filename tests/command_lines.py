"""Processes by their command lines."""

import psutil

FORK_SERVER = "prepared_worker"  # in the command line or in the name, which has 15 letters


def command_line(process: psutil.Process) -> list[str]:
    """Return a process's arguments; nothing for one that has ended, whether anyone has waited for it or not."""
    try:
        return list(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def workers_of(server: psutil.Process) -> list[psutil.Process]:
    """Return the processes of the engines of a server, without the process from which they were forked."""
    every = {child.pid: (child, " ".join(command_line(child))) for child in server.children(recursive=True)}
    fork_servers = {pid for pid, (child, command) in every.items() if FORK_SERVER in command + name(child)}
    return [
        child
        for child, command in every.values()
        if "lmi_core.workers.worker " in command or (child.pid in fork_servers and parent(child) in fork_servers)
    ]


def name(process: psutil.Process) -> str:
    """Return the name of a process; nothing for one that has ended."""
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def parent(process: psutil.Process) -> int | None:
    """Return the id of a process's parent; None for a process that has ended."""
    try:
        return int(process.ppid())
    except psutil.NoSuchProcess:
        return None
