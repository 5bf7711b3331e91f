"""What is compiled once is not traced again, unless something that shapes it has changed."""

import importlib
import json
import sys
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import pytest

pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
torch = pytest.importorskip("torch")

from mla_var3.cache import Cache  # noqa: E402
from mla_var3.emulator import Options, emulate, identity, kept  # noqa: E402

KERNELS = """\
import os
import cutlass
import cutlass.cute as cute
from added import AMOUNT, Amount

TIMES = 1
TABLE = {"more": 0}


@cute.kernel
def add(x: cute.Tensor, y: cute.Tensor, amount: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    y[thread] = x[thread] + amount * TIMES + TABLE["more"]


@cute.jit
def host(x: cute.Tensor, y: cute.Tensor):
    print("traced")
    add(x, y, AMOUNT).launch(grid=(1, 1, 1), block=(32, 1, 1))


class Host:
    def __init__(self, amount):
        self.amount = amount

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.threads, self.kind = (32, 1, 1), x.element_type
        self.layout = cute.make_layout(4)
        add(x, y, self.amount).launch(grid=(1, 1, 1), block=self.threads)


def closed(amount):
    @cute.jit
    def inner(x: cute.Tensor, y: cute.Tensor):
        add(x, y, amount).launch(grid=(1, 1, 1), block=(32, 1, 1))

    return inner


@cute.jit
def by_environment(x: cute.Tensor, y: cute.Tensor):
    add(x, y, int(os.environ.get("AMOUNT", "1"))).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.jit
def late(x: cute.Tensor, y: cute.Tensor):
    from later import LATE
    add(x, y, LATE).launch(grid=(1, 1, 1), block=(32, 1, 1))


@cute.jit
def returning(x: cute.Tensor, y: cute.Tensor):
    add(x, y, 1).launch(grid=(1, 1, 1), block=(32, 1, 1))
    return 7


@cute.jit
def counting(x: cute.Tensor, y: cute.Tensor):
    TABLE["more"] = TABLE["more"] + 1
    add(x, y, 1).launch(grid=(1, 1, 1), block=(32, 1, 1))
"""
ADDED = "class Amount:\n    OF = 1\n\n\nAMOUNT = 1\n"


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    """Kernels in files that may change, and how often one was traced."""
    monkeypatch.setenv("HYPERMLA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "adding.py").write_text(KERNELS)
    (tmp_path / "added.py").write_text(ADDED)
    (tmp_path / "later.py").write_text("LATE = 1\n")
    yield lambda: load("adding", "added", "later")
    load()


def load(*names):
    """The first module as it is on disk now."""
    for name in ("adding", "added", "later"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    for file in Path(sys.path[0]).glob("__pycache__/*"):
        file.unlink()
    return importlib.import_module(names[0]) if names else None


@pytest.fixture
def traces(monkeypatch):
    """Grows by one at each trace."""
    from cutlass.base_dsl.dsl import BaseDSL

    seen, original = [], BaseDSL.generate_original_ir

    def counted(self, *args, **named):
        seen.append(args)
        return original(self, *args, **named)

    monkeypatch.setattr(BaseDSL, "generate_original_ir", counted)
    return seen


def difference(host, options=None, arch="sm_90a", like=None) -> float:
    """What a host function adds to each element."""
    from cutlass.cute.runtime import from_dlpack

    x = torch.arange(32.0) if like is None else like
    y = torch.zeros_like(x)
    with emulate(options or Options(), arch) as run:
        host(from_dlpack(x), from_dlpack(y))
    assert len(run.launches) == 1
    assert run.diagnostics == []
    assert run.launches[0].counts.total_bytes("global read") == x.nbytes
    (told,) = set((y - x).tolist())
    return told


def test_the_second_time_nothing_is_traced(kernels, traces, capsys) -> None:
    assert difference(kernels().host) == 1
    assert len(traces) == 1
    assert capsys.readouterr().out == "traced\n"
    assert difference(kernels().host) == 1
    assert len(traces) == 1
    assert capsys.readouterr().out == "traced\n"  # As the first time.


def test_compiled_apart_and_run_in_one_are_not_the_same(kernels, traces) -> None:
    import cutlass.cute as cute
    from cutlass.cute.runtime import from_dlpack

    host = kernels().host
    assert difference(host) == 1
    for _ in range(2):
        x, y = torch.arange(32.0), torch.zeros(32)
        with emulate(Options()) as run:
            compiled = cute.compile(host, from_dlpack(x), from_dlpack(y))
            assert run.launches == []
            assert ".visible .entry" in compiled.__ptx__
            compiled(from_dlpack(x), from_dlpack(y))
            compiled(from_dlpack(x), from_dlpack(y))
        assert len(run.launches) == 2
        assert torch.equal(y, x + 1)
    assert len(traces) == 2


@pytest.mark.parametrize(("file", "old", "new", "told"), [
    ("adding.py", "amount * TIMES", "amount * 5", 5),
    ("adding.py", "TIMES = 1", "TIMES = 3", 3),
    ("added.py", "AMOUNT = 1", "AMOUNT = 4", 4),
    ("added.py", "OF = 1", "OF = 2", 1),
])  # fmt: skip
def test_a_changed_source_is_traced_again(
    kernels, traces, tmp_path, file: str, old: str, new: str, told: int
) -> None:
    assert difference(kernels().host) == 1
    path = tmp_path / file
    path.write_text(path.read_text().replace(old, new))
    assert difference(kernels().host) == told
    assert len(traces) == 2
    assert difference(kernels().host) == told
    assert len(traces) == 2


def test_a_module_that_only_tracing_loads_is_a_source_too(kernels, traces, tmp_path) -> None:
    assert difference(kernels().late) == 1
    assert difference(kernels().late) == 1
    assert len(traces) == 1
    (tmp_path / "later.py").write_text("LATE = 6\n")
    assert difference(kernels().late) == 6
    assert len(traces) == 2


def test_values_that_a_kernel_reads_count(kernels, traces) -> None:
    module = kernels()
    assert difference(module.host) == 1
    module.TIMES = 2
    assert difference(module.host) == 2
    module.TABLE["more"] = 5
    assert difference(module.host) == 7
    assert difference(module.closed(3)) == 11
    assert difference(module.closed(4)) == 13
    assert len(traces) == 5
    assert difference(module.closed(3)) == 11
    assert len(traces) == 5


def test_arguments_and_the_arch_count(kernels, traces) -> None:
    host = kernels().host
    assert difference(host) == 1
    assert difference(host, like=torch.arange(32, dtype=torch.int32)) == 1
    assert difference(host, arch="sm_80") == 1
    assert difference(host, Options(multiprocessors=5)) == 1
    assert len(traces) == 4


def test_what_tracing_set_on_an_object_is_set_again(kernels, traces) -> None:
    import cutlass

    for _ in range(2):
        host = kernels().Host(2)
        assert difference(host) == 2
        assert host.threads == (32, 1, 1)
        assert host.kind is cutlass.Float32
    assert len(traces) == 1
    assert not hasattr(host, "layout")  # It belongs to a trace that is over.
    assert difference(kernels().Host(3)) == 3
    assert len(traces) == 2


@pytest.mark.parametrize("name", ["by_environment", "returning", "counting"])
def test_what_cannot_be_told_is_compiled_every_time(kernels, traces, name: str) -> None:
    for _ in range(2):
        difference(getattr(kernels(), name))
    assert len(traces) == 2
    assert Cache().folder.is_dir() is False or list(Cache().folder.glob("??/*")) == []


def test_a_damaged_entry_is_made_again(kernels, traces) -> None:
    assert difference(kernels().host) == 1
    (entry,) = Cache().folder.glob("??/*")
    for damage in (b"", b"{}"):
        files = Cache().get(entry.name)
        assert files is not None
        Cache().discard(entry.name)
        Cache().put(entry.name, files | {kept.ABOUT: damage})
        assert difference(kernels().host) == 1
    assert len(traces) == 3
    assert json.loads(Cache().get(entry.name)[kept.ABOUT])["kernels"] == 1


def test_classes_that_share_a_name_are_told_apart() -> None:
    from cutlass import Int32, Int64, cute

    def of(kind) -> object:
        return identity.Identity().of(kind)

    ranges = [cute.struct.MemRange[Int64, 2], cute.struct.MemRange[Int64, 3],
              cute.struct.MemRange[Int32, 2]]  # fmt: skip
    told = [json.dumps(of(kind)) for kind in ranges]
    assert len(set(told)) == 3
    assert of(Int32) == ["class", Int32.__module__, "Int32"]
    assert of({1, 2}) == of({2, 1}) != of({1, 3})
    assert of((1, True)) != of((1, 1)) != of((1, 1.0))
    shared = [1]
    assert of([shared, shared]) != of([[1], [1]])


def test_a_dataclass_is_told_by_its_fields() -> None:
    @dataclass(frozen=True)
    class Tiling:
        rows: int = field(default=64, metadata={"unit": "row"})

    def of(value: object) -> str:
        return json.dumps(identity.Identity().of(value))

    assert of(Tiling()) == of(Tiling(64)) != of(Tiling(128))
    assert of(MappingProxyType({1: 2})) != of(MappingProxyType({1: 3}))


def test_what_shows_no_settings_is_not_told() -> None:
    with pytest.raises(identity.UntoldError, match="shows no settings"):
        identity.Identity().of(iter(()))
    exec("def change():\n    global X\n    X = 1\n", space := {})
    with pytest.raises(identity.UntoldError, match="changes a global"):
        identity.Identity()._reads(space["change"].__code__, {})


class Mode(Enum):
    ONE, TWO = 1, 2


PLAIN = (None, True, False, 0, 1, -7, 2.5, "", "a", "1")


@pytest.mark.parametrize(
    "value",
    [*PLAIN, (), [], (1, (2, [3, None])), [Mode.ONE, (Mode.TWO,)], Mode, [dict, (Path, 1.0)]],
    ids=repr,
)
def test_what_tracing_set_is_set_again_as_it_was(value: object) -> None:
    written = json.loads(json.dumps(kept._coded(value)))
    again = kept._value(written)
    assert (again, repr(again), type(again)) == (value, repr(value), type(value))


def test_values_are_alike_where_they_are_written_alike() -> None:
    made = type("Made", (), {})
    values = [*PLAIN, (1,), [1], (1, 2), Mode.ONE, Mode.TWO, Mode, dict]
    for i, one in enumerate(values):
        for j, other in enumerate(values):
            same = i == j or (one == other and not isinstance(one, list | tuple))
            assert kept._coded_alike(one, other) is same, (one, other)
        for other in (object(), made, made(), {1: 2}):
            assert kept._coded_alike(one, other) is kept._coded_alike(other, one) is False


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_who_asked_for_multiprocessors_before_has_asked_still(
    before: bool, asked: bool, fails: bool
) -> None:
    """A compile says whether it asked itself; the launch around it whether anything did."""
    emulation = SimpleNamespace(counted=before)
    keeper = SimpleNamespace(emulation=emulation)
    told: list[bool] = []
    try:
        with kept._Keeper._watched(keeper) as told:  # type: ignore[arg-type]
            assert told == [False]
            assert emulation.counted is False
            emulation.counted = asked
            if fails:
                raise ValueError("it does not compile")
    except ValueError:
        assert fails
    assert told == [asked]
    assert emulation.counted is (before or asked)
