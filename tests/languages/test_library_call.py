import pytest

from mla_var3.languages.library.call import call_digest

SOURCE = """
PAGE = 64
UNUSED = 1

class Plan(Problem):
    def default_tiling(self, stage):
        return Tiling()

    def plan(self, *inputs):
        return LibraryKernel(lambda: attend(*inputs, self._flags()), "attend", _name="x")

    def _flags(self):
        return {"page": PAGE}

def attend(q, flags):
    q.copy_(library.attend(q, **flags))
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [("UNUSED = 1", "UNUSED = 2"), ("return Tiling()", "return Other()"), ("Plan(", "PlanV2("),
     ("_flags", "_settings"), (" attend(", " attend_v2("),
     ('_name="x"', '_name="y"'),
     ("PAGE = 64", "PAGE = 64  # keys")],
)  # fmt: skip
def test_what_the_call_does_not_reach_is_no_part_of_it(old, new):
    assert call_digest([SOURCE.replace(old, new)]) == call_digest([SOURCE])


@pytest.mark.parametrize(
    ("old", "new"),
    [("PAGE = 64", "PAGE = 32"), ("q.copy_(", "q.add_("), ('"page"', '"pages"')],
)
def test_what_it_reaches_is(old, new):
    assert call_digest([SOURCE.replace(old, new)]) != call_digest([SOURCE])


def test_sources_may_be_several_files():
    plan, attend = SOURCE.split("def attend")
    assert call_digest([plan, f"def attend{attend}"]) == call_digest([SOURCE])
