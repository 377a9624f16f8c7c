"""The `ferry` command: `python -m tableferry.pipelines.cli` is the same."""

import atexit
import gc
import os

# Dagster and what comes with it are 200,000 objects that stay: to look for garbage among them, and
# once more when the process ends, takes a third of the time of a small run
gc.set_threshold(100_000, 20, 100)
atexit.register(gc.freeze)
# NumPy's threads for linear algebra, which nothing here does, spin for a while when they start
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from tableferry.pipelines.command.main import main  # noqa: E402

__all__ = ["main"]

if __name__ == "__main__":
    main()
