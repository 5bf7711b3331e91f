"""The court gives the work of its kernels itself."""

import pytest


@pytest.fixture
def cost() -> None:
    """In place of the one that invents the work of records without a commit."""
