from lmi_core.logs.loading_progress import LoadingProgress


def test_stages_with_and_without_bytes() -> None:
    now = [10.0]
    progress = LoadingProgress(lambda: now[0])
    assert (progress.what, progress.share, progress.seconds) == ("", None, 0.0)
    progress.report("importing PyTorch")
    now[0] = 12.4
    assert (str(progress), progress.share) == ("importing PyTorch, 2 s", None)
    progress.report("reading weights", 1_200_000_000, 14_000_000_000)
    assert str(progress) == "reading weights, 1.2 GB of 14 GB, 2 s"
    progress.report("downloading", 700)
    assert (str(progress), progress.share) == ("downloading, 700 B, 2 s", None)


def test_a_share_of_nothing() -> None:
    progress = LoadingProgress()
    progress.report("reading weights", 0, 0)
    assert progress.share is None
