"""The fixtures of the tests that move data."""

from tests.integration.conftest import empty_home, ferry

__all__ = ["empty_home", "ferry"]
