from __future__ import annotations

import pytest

from .trees import Tree, plant


@pytest.fixture
def tree(tmp_path) -> Tree:
    return plant(tmp_path)
