from __future__ import annotations

import pytest

from mla_var3 import evidence
from mla_var3.runtime import costs
from mla_var3.workloads import Cost

from .trees import Tree, plant

_of_versions, _ways = costs.cost, costs.ways


@pytest.fixture(autouse=True)
def cost(monkeypatch: pytest.MonkeyPatch) -> dict[str, Cost]:
    """What records of ``trees`` cost, by stage; of others what their version says."""
    own = {"": Cost(1000, 100)}

    def found(record: evidence.Record, stage: evidence.Stage | None = None) -> Cost | None:
        if record.git is not None or not isinstance(record.outcome, evidence.Passed):
            return _of_versions(record, stage)
        return own.get(stage.name if stage else "", own[""])

    def ways(record: evidence.Record) -> tuple[Cost, ...]:
        return _ways(record) if record.git is not None else (own[""],)

    monkeypatch.setattr(costs, "cost", found)
    monkeypatch.setattr(costs, "ways", ways)
    return own


@pytest.fixture
def tree(tmp_path) -> Tree:
    return plant(tmp_path)
