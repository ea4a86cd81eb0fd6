from lmi_handlers.container.server_keys import SERVER_KEYS
from lmi_handlers.container.variables import VARIABLES
from tools.docs.container import tables


def test_every_declaration_has_a_row() -> None:
    for name, declared in (("keys", SERVER_KEYS), ("variables", VARIABLES)):
        rows = tables()[name].splitlines()[2:]
        assert [row.split("`")[1] for row in rows] == [each.name for each in declared]


def test_a_row() -> None:
    name, sets = "SAGEMAKER_NUM_MODEL_WORKERS", "Sets `minWorkers`, `maxWorkers`."
    (row,) = (row for row in tables()["variables"].splitlines() if f"{name}` |" in row)
    assert row == f"| `{name}` | honoured | The number of processes that run a model function. {sets} |"
