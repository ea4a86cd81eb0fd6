"""The end of processes that were told of it: without a look at their garbage, with all that they wrote."""

import signal
import subprocess
import sys
from pathlib import Path

TOLD = """\
import atexit, gc, multiprocessing, sys, time
from lmi_plugins.vllm_engine.processes import announce_end, skip_collection

class Cycle:
    def __init__(self):
        self.own = self

def collected():
    Cycle()
    return gc.collect()

def work(told):
    skip_collection()
    atexit.register(print, "the end of the interpreter")
    gc.freeze()
    print(collected() > 0, flush=True)
    told.set()
    while not gc.callbacks:
        time.sleep(0.01)
    gc.unfreeze()
    print(collected(), flush=True)
    sys.stdout.write("written")
    sys.exit(3)

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    told = context.Event()
    process = context.Process(target=work, args=(told,))
    process.start()
    told.wait()
    announce_end(process.pid)
    process.join()
"""


def test_a_process_that_is_told_leaves_its_garbage(tmp_path: Path) -> None:
    (program := tmp_path / "program.py").write_text(TOLD)
    said = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout == "True\n0\nwritten"
    assert said.stderr == ""


HOLDING = """\
import multiprocessing, os, signal, threading
from lmi_plugins.vllm_engine.processes import announce_end, hold_back_sigterm

def work(ready):
    ready.send(signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, []))
    os.kill(os.getpid(), signal.SIGTERM)
    ready.send("lives")
    ready.recv()

def start(found):
    hold_back_sigterm()
    own, other = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=work, args=(other,))
    process.start()
    announce_end(process.pid)  # which it does not heed, and ignores
    found += [own.recv(), own.recv(), process.is_alive()]
    own.send("end")
    process.join()
    found.append(process.exitcode)

if __name__ == "__main__":
    found = []
    thread = threading.Thread(target=start, args=(found,))
    thread.start()
    thread.join()
    print(found, signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""


def test_sigterm_is_held_back_from_the_processes_that_a_thread_starts(tmp_path: Path) -> None:
    """The first process of a program also starts the tracker of resources, which would let the signal through."""
    (program := tmp_path / "program.py").write_text(HOLDING)
    said = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout == "[True, 'lives', True, 0] False\n"
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
