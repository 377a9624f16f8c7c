"""The `ferry` command: `python -m pipelines.cli` is the same."""

from pipelines.command.main import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
