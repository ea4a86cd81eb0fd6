"""Reading of a Dockerfile, as far as ours needs it."""

import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "Dockerfile"


class Instruction(NamedTuple):
    name: str
    text: str

    @property
    def command(self) -> list[str]:
        """The words of an exec form; a shell's form, in which a shell is process 1, is an error."""
        words = json.loads(self.text)
        assert isinstance(words, list)
        return [str(word) for word in words]


def instructions(path: Path = DOCKERFILE) -> list[Instruction]:
    """Return the instructions, each in one line, without comments."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [Instruction(*line.split(None, 1)) for line in joined.splitlines() if line]


def last_stage() -> dict[str, Instruction]:
    """Return the last instruction of each name in the image that is made."""
    found: dict[str, Instruction] = {}
    for each in instructions():
        if each.name == "FROM":
            found = {}
        found[each.name] = each
    return found


def health_command() -> list[str]:
    """Return the command of HEALTHCHECK."""
    return Instruction("CMD", last_stage()["HEALTHCHECK"].text.partition("CMD")[2]).command


def environment() -> dict[str, str]:
    """Return the variables of the image, with the paths of programs as they are written."""
    return dict(word.split("=", 1) for word in shlex.split(last_stage()["ENV"].text))


def copied() -> list[str]:
    """Return the files and folders that the image is built from."""
    sources = [each.text.split()[:-1] for each in instructions() if each.name == "COPY" and "--from" not in each.text]
    return [source for group in sources for source in group]
