import re

from lmi_handlers.container.server_keys import SERVER_KEYS
from lmi_handlers.container.variables import VARIABLES
from tools.docs.container import tables


def test_every_declaration_is_in_one_row() -> None:
    for name, declared in (("keys", SERVER_KEYS), ("variables", VARIABLES)):
        rows = tables()[name].splitlines()[2:]
        names = [found for row in rows for found in re.findall(r"`(.+?)`", row.split("|")[1])]
        assert sorted(names) == sorted(each.name for each in declared)


def test_names_of_one_meaning_share_a_row() -> None:
    assert "| `JAVA_OPTS`, `JAVA_HOME` | informational | This server has no JVM. |" in tables()["variables"]


def test_a_row() -> None:
    name, sets = "SAGEMAKER_NUM_MODEL_WORKERS", "Sets `minWorkers`, `maxWorkers`."
    (row,) = (row for row in tables()["variables"].splitlines() if f"{name}` |" in row)
    assert row == f"| `{name}` | honoured | The number of processes that run a model function. {sets} |"
