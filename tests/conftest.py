from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import settings

from mla_var3 import collecting

# The same examples every time, so that a failure is a fault and never bad luck, and no deadlines,
# since a slow machine is no fault. HYPOTHESIS_PROFILE=explore tries new examples.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# A shell's background jobs ignore interrupts, and so would every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

#: Tests of what stands on the package. Counting branches doubles the time of interpreted kernels,
#: and coverage should come from the tests that are about the covered module.
UNCOUNTED = (
    "tests/kernels/",
    "tests/generators/",
    "tests/site/",
    "tests/interpreter/test_adversarial",
    "tests/interpreter/test_docstring_examples",
    "tests/interpreter/test_fuzz",
    "tests/interpreter/test_properties",
)


#: Files that take longest come first, so that no process is left alone with them at the end. In
#: `nox -s exhaustive` those that wait for the site come last: by then the first file has built it.
ORDER = ("tests/site/test_site", "tests/generators/", "tests/kernels/", "", "tests/site/")


@pytest.hookimpl(tryfirst=True)  # Before -m chooses.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _sample(items)
    for item in items:
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU, torch sees none"))
        if any(part in item.path.as_posix() for part in UNCOUNTED):
            item.add_marker(pytest.mark.no_cover)
    items.sort(key=lambda item: _place(item.path.as_posix()))


def pytest_collection_finish() -> None:
    """Nothing that is imported by now is garbage: a search of it takes 0.3 s, over and over."""
    collecting.keep()


def _sample(items: list[pytest.Item]) -> None:
    """Leave to `nox -s exhaustive` all cases but every nth of a test marked ``sampled(n)``."""
    seen: Counter[str] = Counter()
    for item in items:
        if mark := item.get_closest_marker("sampled"):
            test = item.nodeid.partition("[")[0]
            if seen[test] % mark.args[0]:
                item.add_marker(pytest.mark.exhaustive)
            seen[test] += 1


def _place(path: str) -> int:
    return next((i for i, part in enumerate(ORDER) if part and part in path), ORDER.index(""))


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
