from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import settings

# The same examples every time, so that a failure is a fault and never bad luck, and no deadlines,
# since a slow machine is no fault. HYPOTHESIS_PROFILE=explore tries new examples.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

#: Tests of what stands on the package. Counting branches doubles the time of interpreted kernels,
#: and coverage should come from the tests that are about the covered module.
UNCOUNTED = (
    "tests/kernels/",
    "tests/generators/",
    "tests/site/",
    "tests/interpreter/test_adversarial",
    "tests/interpreter/test_docstring_examples",
    "tests/interpreter/test_properties",
)


#: What takes longest comes first, so that no process is left alone with it at the end.
LONGEST = ("tests/site/", "tests/generators/", "tests/kernels/")


@pytest.hookimpl(tryfirst=True)  # Before pytest-xdist reads the groups.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.as_posix()
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU, torch sees none"))
        if any(part in path for part in UNCOUNTED):
            item.add_marker(pytest.mark.no_cover)
        item.add_marker(pytest.mark.xdist_group(_group(path)))
    items.sort(key=lambda item: _place(item.path.as_posix()))


def _place(path: str) -> int:
    return next((i for i, part in enumerate(LONGEST) if part in path), len(LONGEST))


def _group(path: str) -> str:
    """Tests that one process runs: those of a file, or of a folder that builds the whole site."""
    return LONGEST[_place(path)] if _place(path) < 2 else path


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Interpreted tiles are small: more torch threads only get in each other's way."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def running_playwright() -> Iterator[Any]:
    """One for all browser tests of a process: Playwright refuses a second beside it."""
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as running:
        yield running
