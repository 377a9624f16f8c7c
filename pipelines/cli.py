"""The `ferry` command: `python -m tableferry.pipelines.cli` is the same."""

import os

from tableferry.pipelines.command.garbage import look_seldom

look_seldom()
# NumPy's threads for linear algebra, which nothing here does, spin for a while when they start
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from tableferry.pipelines.command.main import main  # noqa: E402

__all__ = ["main"]

if __name__ == "__main__":
    main()
