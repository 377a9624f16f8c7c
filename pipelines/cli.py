"""The `ferry` command: `python -m pipelines.cli` is the same."""

from pipelines.command.garbage import look_seldom

look_seldom()

from pipelines.command.main import main  # noqa: E402

__all__ = ["main"]

if __name__ == "__main__":
    main()
