from lmi_core.metrics.recent_errors import MAX_LENGTH, RecentError, RecentErrors, without_values


def error(message: str = "full", kind: str = "overloaded", status: int = 503, request_id: str = "a") -> RecentError:
    return RecentError(0, 1.0, "model", request_id, "/invocations", status, kind, message)


def test_the_latest_come_first() -> None:
    errors = RecentErrors()
    for message in ("one", "two"):
        errors.add(error(message))
    errors.add(error("three", "invalid_parameter", 400))
    assert [(each.number, each.message) for each in errors] == [(3, "three"), (2, "two"), (1, "one")]
    assert errors.latest == 3


def test_the_same_error_again_is_one_more_of_it() -> None:
    errors = RecentErrors()
    for request_id in ("a", "b", "c"):
        errors.add(error(request_id=request_id))
    errors.add(error("other"))
    errors.add(error(request_id="d"))
    assert [(each.message, each.count, each.request_id) for each in errors] == [
        ("full", 1, "d"),
        ("other", 1, "a"),
        ("full", 3, "c"),
    ]


def test_faults_of_clients_do_not_drive_out_those_of_the_server() -> None:
    errors = RecentErrors(kept=3)
    errors.add(error("engine died", "backend_unhealthy"))
    errors.add(error("a formatter raised", "formatter_failed", 424))
    for number in range(10):
        errors.add(error(f"wrong {number}", "invalid_parameter", 424))
    assert [each.message for each in errors] == [
        "wrong 9",
        "wrong 8",
        "wrong 7",
        "a formatter raised",
        "engine died",
    ]


def test_what_was_given_is_left_out() -> None:
    assert without_values("`top_k` must be a number.\nGiven: 'sk-secret'") == "`top_k` must be a number."
    assert len(without_values("long " * MAX_LENGTH)) == MAX_LENGTH
