from lmi_core.metrics.engine_figures import EngineFigures


def test_counts_go_on_in_the_next_engine() -> None:
    first = EngineFigures(running=3, waiting=1, cache_usage=0.5, looked_up_tokens=100, cached_tokens=40)
    gone = first.idle()
    assert (gone.running, gone.waiting, gone.cache_usage, gone.looked_up_tokens) == (0, 0, 0.0, 100)
    second = EngineFigures(running=1, looked_up_tokens=10, cached_tokens=5).after(gone)
    assert (second.running, second.looked_up_tokens, second.cached_tokens) == (1, 110, 45)


def test_an_engine_that_tells_nothing() -> None:
    assert EngineFigures(restarts=2).after(EngineFigures()) == EngineFigures(restarts=2)
    assert EngineFigures().idle().cache_usage is None
