from __future__ import annotations

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU, torch sees none"))


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Interpreted tiles are small: more torch threads only get in each other's way."""
    torch.set_num_threads(1)
