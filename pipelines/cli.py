"""The `ferry` command: `python -m tableferry.pipelines.cli` is the same."""

import atexit
import gc
import os

# Dagster and its dependencies are 200,000 long-lived objects: garbage collections of them, also at
# exit, take a third of the time of a small run
gc.set_threshold(100_000, 20, 100)
atexit.register(gc.freeze)
# NumPy's linear algebra threads, which nothing here uses, spin for a while when they start
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Dagster's services that a command starts send no usage statistics, whatever their home says
os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "yes")

from tableferry.pipelines.command.main import main  # noqa: E402

__all__ = ["main"]

if __name__ == "__main__":
    main()
