"""What moves: the transfers, the code location and the commands."""

from pipelines.isolation import require_own_packages

require_own_packages()
