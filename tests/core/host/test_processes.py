import os
import subprocess
import sys
import time

from lmi_core.host.processes import memory_of, process_tree, start_time

# Starts a child from a thread, which tells its own id once it runs, and ends with it when their input does.
CHILD = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"
PARENT = f"""\
import subprocess, sys, threading
thread = threading.Thread(target=subprocess.run, args=([sys.executable, "-c", {CHILD!r}],))
thread.start()
thread.join()
"""


def test_descendants_are_counted() -> None:
    command, now = [sys.executable, "-c", PARENT], time.time()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        found = {each.pid: each.memory_info().rss for each in process_tree(parent.pid)}
        assert found.keys() == {parent.pid, child}
        assert all(1 << 20 < resident < 1 << 30 for resident in found.values())
        mine = memory_of({"all": [os.getpid()], "twice": [parent.pid, child]})
        assert mine["all"] > mine["twice"] > 0
        begun = start_time(parent.pid)
        assert begun is not None
        assert -2 < begun - now < 60  # the time of the system's start is in whole seconds
        assert parent.stdin is not None
        parent.stdin.close()
    assert process_tree(parent.pid) == set()
    assert memory_of({"gone": [parent.pid]}) == {}
    assert start_time(parent.pid) is None
