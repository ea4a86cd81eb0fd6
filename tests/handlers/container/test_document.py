from pathlib import Path

from lmi_handlers.container.document import tables, with_tables
from lmi_handlers.container.server_keys import SERVER_KEYS
from lmi_handlers.container.variables import VARIABLES

DOCUMENT = Path(__file__).parents[3] / "docs" / "how_to" / "container.md"


def test_the_document_is_as_declared() -> None:
    assert DOCUMENT.read_text() == with_tables(DOCUMENT.read_text()), "run `make docs`"
    assert all(table in DOCUMENT.read_text() for table in tables().values())


def test_every_declaration_has_a_row() -> None:
    for name, declared in (("keys", SERVER_KEYS), ("variables", VARIABLES)):
        rows = tables()[name].splitlines()[2:]
        assert [row.split("`")[1] for row in rows] == [each.name for each in declared]


def test_a_row() -> None:
    name, sets = "SAGEMAKER_NUM_MODEL_WORKERS", "Sets `minWorkers`, `maxWorkers`."
    (row,) = (row for row in tables()["variables"].splitlines() if f"{name}` |" in row)
    assert row == f"| `{name}` | honoured | The number of processes that run a model function. {sets} |"
