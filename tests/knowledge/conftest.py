from __future__ import annotations

import pytest
from hypothesis import settings

from .trees import Tree, plant

# Machines that run several test processes are slow at times; a slow example is no failure.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")


@pytest.fixture
def tree(tmp_path) -> Tree:
    return plant(tmp_path)
