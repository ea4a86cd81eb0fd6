"""One soak: a server is started, asked in quiet, then by many with faults, looked at in quiet again, and ended."""

import asyncio
import json
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.lmi_process import LmiProcess, lmi_serve
from tests.plugins.vllm_server import ENVIRONMENT
from tests.soak import adapters, keys, models
from tests.soak.answers import Wrong
from tests.soak.directory import save_directory, save_visitor
from tests.soak.faults import Faults
from tests.soak.footprint import Footprint, footprint, leaks, leftovers, sizes
from tests.soak.grpc_clients import GrpcClient
from tests.soak.hostile import FORGED, Harm, again_and_again, hostile, parties, send
from tests.soak.manners import MANNERS, clients, read
from tests.soak.questions import BAD, PASSING, Question, questions
from tests.soak.target import JSON, Tally, Target

PLUGINS = Path(__file__).parent / "plugins"
SAMPLE_SECONDS, PRINT_SECONDS = 5.0, 60.0
QUIET_SECONDS = 60.0  # in which a server that is left alone must come to rest
NEIGHBOUR = ("/tokenize", "Hey, how are you? " * 1400)  # 25 KB, for which no engine is needed, but one that runs
EXPECTED_ERRORS = ("is restarted", "exit code -9", "gave no sign of life", "vLLM's engine died")


Probe = tuple[float, float, int, str]  # milliseconds, those of them that are the server's own, status and path


@dataclass(frozen=True)
class Plan:
    """What a soak does."""

    seconds: float = 600
    clients: int = 24
    pause: float = 15  # seconds between faults, on average
    per_dialect: int = 4  # questions
    quiet: float = 0.1  # of the seconds, in which the neighbour is alone
    rest: float = 5  # seconds in which closed connections are swept, and the memory of long texts is given back
    harm: Harm = field(default_factory=Harm)
    warm_up: float = 0.1  # of the seconds, after which the memory must not grow any more
    memory_bound: float = 40  # MB
    slack: int = 1  # times that of everything else
    faults: tuple[signal.Signals, ...] = (signal.SIGKILL, signal.SIGSTOP)
    max_faults: int | None = None
    seed: int = 1
    backend: str = "torch"


@dataclass
class Finding:
    """The findings of a soak, which has passed if there are none."""

    plan: Plan
    tally: Tally = field(default_factory=Tally)
    questions: int = 0
    killed: list[float] = field(default_factory=list)
    stopped: list[float] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    quiet: list[Probe] = field(default_factory=list)  # of the neighbour while nobody else asked
    beside: list[Probe] = field(default_factory=list)  # the same, while all others did
    samples: list[Footprint] = field(default_factory=list)
    before: Footprint = field(default_factory=Footprint)
    after: Footprint = field(default_factory=Footprint)
    wrong: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)  # the server's


async def soak(plan: Plan, folder: Path) -> Finding:
    """Soak a server of its own, whose files are in the folder."""
    found = Finding(plan)
    directory = save_directory(folder, plan.backend)
    temporary = folder / "tmp"
    temporary.mkdir()
    arguments = ("--port", 0, "--grpc-port", 0, "--plugins-dir", PLUGINS, "--drain-seconds", 120)
    keys.write_keys(file := folder / "keys")
    environment = {"TMPDIR": str(temporary), "SERVING_API_KEYS_FILE": str(file), **ENVIRONMENT}
    async with lmi_serve(directory, *arguments, environment=environment, forked=False) as server:
        url = await server.ready()
        grpc = GrpcClient(server.log[-1].partition("gRPC on ")[2].partition(" ")[0])
        async with _log_read(server), Target(url, keys.headers_of(keys.STEADY_KEYS[0])) as target:
            found.tally = target.tally
            asked = await learn(target, grpc, plan, folder / PASSING)
            found.questions = len(target.expected)
            for each in hostile(plan.harm.length, target.address[1]):
                await send(target, each, None)
            async with probed(target, server.process.pid, found.quiet, *neighbour()):
                await asyncio.sleep(plan.quiet * plan.seconds)
            await _load(server, target, grpc, asked, found, folder)
            await grpc.close()
            found.wrong += await _end(server, target, asked)
    found.wrong += target.tally.wrong
    found.log = server.log
    found.wrong += [line for line in server.log if is_fault(line)]
    if not target.tally.hostile[keys.BEYOND]:
        found.wrong.append("no request of the greedy key was beyond its limit")
    found.wrong += leftovers(temporary, [])
    return found


async def learn(target: Target, grpc: GrpcClient, plan: Plan, adapter: Path) -> list[Question]:
    """Ask every question in quiet, twice, and return those with an answer."""
    asked = questions(plan.seed, plan.per_dialect)
    await target.learn(asked)
    await target.learn([keys.QUESTION, models.QUESTION])
    await target.learn(BAD, errors=True)
    await adapters.learn(target, adapter)
    await grpc.learn()
    return asked


async def _load(
    server: LmiProcess, target: Target, grpc: GrpcClient, asked: list[Question], found: Finding, folder: Path
) -> None:
    """Have the clients ask, first without faults, then with them, and look at the server after both."""
    process, plan = server.process.pid, found.plan
    manners = MANNERS | grpc.manners()
    every = clients(target, plan.clients, plan.seed, asked)
    harm = [*parties(target, grpc.address, plan.harm, plan.seed)]
    visitor = save_visitor(folder)

    async def ask(seconds: float, *others: asyncio.Task[None], over: asyncio.Event) -> None:
        asking = [asyncio.create_task(client.run(over, manners)) for client in every]
        coming = [
            adapters.come_and_go(target, folder / PASSING, over),
            models.come_and_go(target, visitor, over),
            keys.come_and_go(target, process, folder / "keys", over),
            keys.be_greedy(target, over),
            *(again_and_again(party, target, over) for party in harm),
        ]
        asking += [asyncio.create_task(each) for each in coming]
        await asyncio.sleep(seconds)
        over.set()
        await asyncio.gather(*asking, *others)
        await target.reconnect()
        await _rest(target, plan.rest)

    # Under the same faults as later, whose crowds of waiting requests leave gaps in the memory.
    first, over = Faults(process, target, plan.faults), asyncio.Event()
    injecting = asyncio.create_task(first.run(over, random.Random(plan.seed), plan.pause, plan.max_faults))
    await ask(plan.warm_up * plan.seconds, injecting, over=over)
    found.before = await footprint(process, target)
    faults, over = Faults(process, target, plan.faults), asyncio.Event()
    async with probed(target, process, found.probes), probed(target, process, found.beside, *neighbour()):
        injecting = asyncio.create_task(faults.run(over, random.Random(plan.seed), plan.pause, plan.max_faults))
        sampling = asyncio.create_task(_sample(process, found, faults, over))
        await ask((1 - plan.warm_up) * plan.seconds, injecting, sampling, over=over)
    found.killed, found.stopped = faults.killed, faults.stopped
    found.after = await footprint(process, target)
    found.wrong += leaks(found.before, found.after, plan.memory_bound, plan.slack)


def neighbour() -> tuple[str, str, str]:
    """Return the path, the headers and the body of the neighbour's request."""
    path, text = NEIGHBOUR
    return path, json.dumps(JSON | keys.headers_of(keys.NEIGHBOUR)), json.dumps({"prompt": text})


async def _rest(target: Target, seconds: float) -> None:
    """Wait until nothing is in progress, which must be soon after the last client has left."""
    async with asyncio.timeout(QUIET_SECONDS):
        while (await target.get("/soak/inside"))["in_flight"]:
            await asyncio.sleep(0.2)
    await asyncio.sleep(seconds)


async def _sample(server: int, found: Finding, faults: Faults, over: asyncio.Event) -> None:
    """Note the sizes, and print what has happened so far from time to time."""
    loop, tally = asyncio.get_running_loop(), found.tally
    begun = printed = loop.time()
    printed_wrong = 0
    while not over.is_set():
        with suppress(psutil.Error):  # the engine's process has just ended
            found.samples.append(sizes(server))
        if found.samples and (now := loop.time()) - printed >= PRINT_SECONDS:
            printed = now
            print(
                f"{(now - begun) / 60:.0f} minutes: {sum(tally.answered.values())} answers, {len(tally.wrong)} wrong, "
                f"{len(faults.killed)} engines killed and {len(faults.stopped)} stopped, "
                f"{sum(tally.hostile.values())} hostile, {found.samples[-1].memory:.0f} MB",
                *(f"WRONG: {each}" for each in tally.wrong[printed_wrong:]),
                sep="\n",
                file=sys.stderr,
                flush=True,
            )
            printed_wrong = len(tally.wrong)
        with suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), SAMPLE_SECONDS)


@asynccontextmanager
async def probed(target: Target, server: int, into: list[Probe], *asked: str) -> AsyncIterator[None]:
    """Probe the server from another process, which sends the request, if there is one."""
    host, port = target.address
    command = (sys.executable, "-m", "tests.soak.probes", host, str(port), str(server), *asked)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    reading = asyncio.create_task(_read_probes(process, into))
    try:
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await reading
        await process.wait()


async def _read_probes(process: asyncio.subprocess.Process, into: list[Probe]) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        taken, own, status, path = line.decode().split()
        into.append((float(taken), float(own), int(status), path))


async def _end(server: LmiProcess, target: Target, asked: list[Question]) -> list[str]:
    """Ask once more and have the server end meanwhile, which it must after the last answer; return what is wrong."""
    children = psutil.Process(server.process.pid).children(recursive=True)
    wrong = []
    last = [asyncio.create_task(read(each)) for each in clients(target, 8, 0, asked)]
    while (await target.get("/soak/inside"))["in_flight"] < len(last) / 2 and not all(each.done() for each in last):
        await asyncio.sleep(0)
    server.process.send_signal(signal.SIGTERM)
    for result in await asyncio.gather(*last, return_exceptions=True):
        if isinstance(result, Wrong):
            wrong.append(f"while the server ends: {result}")
        elif isinstance(result, BaseException):
            raise result
    if (status := await server.process.wait()) != 0:
        wrong.append(f"the server ended with status {status}")
    return wrong + [f"process {each.pid} is left" for each in psutil.wait_procs(children, timeout=10)[1]]


@asynccontextmanager
async def _log_read(server: LmiProcess) -> AsyncIterator[None]:
    """Read the server's log meanwhile, and to its end where the server has ended."""
    reading = asyncio.create_task(server.line_with("no line is like this"))
    try:
        yield
    finally:
        if server.process.returncode is None:
            reading.cancel()
        with suppress(AssertionError, asyncio.CancelledError):
            await reading


def is_fault(line: str) -> bool:
    """Return whether a line of the log tells of something that must not happen in a soak."""
    if "\x1b" in line or line.startswith(FORGED):
        return True
    told = any(word in line for word in ("ERROR", "CRITICAL", "Traceback", "never retrieved", "Task was destroyed"))
    return told and not any(each in line for each in EXPECTED_ERRORS)
