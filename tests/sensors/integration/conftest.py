"""The fixtures of the tests that move data."""

from tests.integration.conftest import ferry

__all__ = ["ferry"]
