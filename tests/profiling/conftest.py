from __future__ import annotations

import pytest
from fake_gpu import FakeGpu, play_gpu


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """Records and artefacts go to a folder of the test."""
    monkeypatch.setenv("HYPERMLA_ROOT", str(tmp_path))
    return tmp_path


@pytest.fixture
def gpu(monkeypatch) -> FakeGpu:
    """An H200 whose tensors lie on the CPU, where kernels are executed; times count up."""
    return play_gpu(monkeypatch)
