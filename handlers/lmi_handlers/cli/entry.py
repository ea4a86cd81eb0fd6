"""The entry point of `lmi`, which handles signals before it imports anything large."""

from lmi_handlers.process.lifetime import prepare_process


def main() -> None:
    prepare_process()
    from lmi_handlers.cli.main import app

    app()


if __name__ == "__main__":
    main()
