"""Python's compiler, which lets no other thread run: the long programs of templates are compiled in a process."""

import marshal
import subprocess
import sys
from types import CodeType
from typing import cast

from lmi_core.calls.haste import NeedsTimeError, hasty_deadline
from lmi_core.chats.rendering.budget import TemplateTooCostlyError

SHORT_PROGRAM = 32 * 1024  # characters, which compile in about ten milliseconds
MAX_SECONDS = 20.0  # of waiting for the process, far more than the longest template takes
# It runs nothing that it reads. The same interpreter reads the code, so that its form is the same.
COMPILER = """\
import marshal, sys
sys.stdout.buffer.write(marshal.dumps(compile(sys.stdin.buffer.read(), sys.argv[1], "exec")))
"""


def compile_program(program: str, filename: str) -> CodeType:
    """Return the code of a program that Jinja has made of a template.

    Raise TemplateTooCostlyError, or NeedsTimeError where a long one has to give way.
    """
    if len(program) <= SHORT_PROGRAM:
        return compile(program, filename, "exec")
    if hasty_deadline() is not None:
        raise NeedsTimeError
    command = [sys.executable, "-I", "-S", "-c", COMPILER, filename]
    try:
        found = subprocess.run(command, input=program.encode(), capture_output=True, timeout=MAX_SECONDS)
    except subprocess.TimeoutExpired:
        raise TemplateTooCostlyError(f"it takes more than {MAX_SECONDS:g} seconds to compile") from None
    if found.returncode:
        raise TemplateTooCostlyError("it is too long, or nested too deeply, to be compiled")
    return cast(CodeType, marshal.loads(found.stdout))
