"""The programs in docs/how_to/offline.md."""

import re
import subprocess
import sys

from tests.docs.pages import ROOT, page

PROGRAMS = re.findall(r"```python\n(.*?)```", page("offline.md").read_text(), re.DOTALL)
ANSWER = "Deep Learning is a really cool field."
WHO = "I am Hello, a tiny language model."
PRINTED = f"{ANSWER}\nlength 4 [-0-9.e]+\n{ANSWER}\n{WHO}\n{ANSWER}{WHO}\n"


def test_the_programs_run_and_print_what_they_say() -> None:
    program = "\n".join(PROGRAMS)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=110)
    assert re.fullmatch(PRINTED, result.stdout), result.stdout + result.stderr
