import re
from collections import OrderedDict

from tests.longest import OF_ONE_ENGINE, ROOT, SECONDS, FilesOfOneEngine, seconds_of

ASKS = re.compile(r"^(async )?def test_\w+\([^)]*\bvllm: VllmServer", re.MULTILINE)


def test_every_file_is_there() -> None:
    assert [name for name in SECONDS if not (ROOT / name).is_file()] == []


def test_files_that_are_not_named_come_last() -> None:
    assert seconds_of(ROOT / "soak" / "test_soak.py") > seconds_of(ROOT / "test_longest.py") == 0


def test_files_of_the_shared_engine() -> None:
    """Every test file that asks for the fixture `vllm` is in the list, and no other."""
    asking = [path for path in ROOT.rglob("test_*.py") if ASKS.search(path.read_text(encoding="utf-8"))]
    assert {path.relative_to(ROOT).as_posix() for path in asking} <= OF_ONE_ENGINE
    assert all("vllm: VllmServer" in (ROOT / name).read_text(encoding="utf-8") for name in OF_ONE_ENGINE)


class Process:
    """A process of xdist's, which is told what to run."""

    shutting_down = False

    def __init__(self) -> None:
        self.told: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.told += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def test_a_process_that_replaces_a_dead_one_gets_its_last_test() -> None:
    """The dead one's files come back with those whose tests have all run."""
    node, files = Process(), FilesOfOneEngine.__new__(FilesOfOneEngine)
    files.log = lambda *_: None
    files.assigned_work = {node: {}}
    files.registered_collections = {node: ["a::1", "b::1", "c::1"]}
    files.workqueue = OrderedDict(a={"a::1": True}, b={"b::1": True}, c={"c::1": False})
    files._reschedule(node)
    assert (node.told, node.shutting_down) == ([2], True)
