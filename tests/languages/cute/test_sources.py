import importlib
import sys
import types

import pytest

from mla_var3.emulator import identity
from mla_var3.errors import PlanError
from mla_var3.languages.cute import arch, reach, sources
from tests.languages.cute.conftest import needs_dsl

MODULE = """
from cutlass.cute.nvgpu import warpgroup as groups
import helper_for_this_test as helper

class Uses:
    def __init__(self, tile): self.tile = tile
    def __call__(self, x, stream): return shared(self)

class Plain:
    def __call__(self, x, stream): return x

class Helped:
    def __call__(self, x, stream): return helper.far()

def shared(it): return groups.fence()
"""
HELPER = "def far(): return setmaxregister_increase()\ndef unused(): return tcgen05\n"


@pytest.fixture
def module(tmp_path, monkeypatch):
    made = {}
    for name, text in (("helper_for_this_test", HELPER), ("module_for_this_test", MODULE)):
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        made[name] = types.ModuleType(name)
        made[name].__file__ = str(path)
        monkeypatch.setitem(sys.modules, name, made[name])
        code = text.replace("from cutlass.cute.nvgpu import warpgroup as groups", "groups = 1")
        exec(compile(code, str(path), "exec"), made[name].__dict__)
    return made["module_for_this_test"]


def names(host):
    return {feature.name.split()[0] for feature in arch.features(reach.identifiers(host))}


def test_what_a_host_reaches_decides_and_not_what_stands_beside_it(module):
    assert names(module.Uses(1)) == {"wgmma"}
    assert names(module.Plain()) == set()
    assert names(module.Helped()) == {"setmaxnreg"}


def test_all_files_of_the_project_count_for_the_cache(module):
    found = {path.name for path in sources.project_files(module.Plain())}
    assert found == {"module_for_this_test.py", "helper_for_this_test.py"}


def test_hosts_differ_by_their_settings(module):
    assert sources.identity(module.Uses(1)) == sources.identity(module.Uses(1))
    assert sources.identity(module.Uses(1)) != sources.identity(module.Uses(2))


def test_a_function_among_the_settings_is_told_by_what_it_keeps(module):
    def keeping(size):
        return lambda: size

    told = [sources.identity(module.Uses(keeping(size))) for size in (1, 1, 2)]
    assert told[0] == told[1] != told[2]
    assert sources.identity(module.Uses(keeping(object()))) is None


def test_a_setting_that_shows_its_address_only_cannot_be_told(module):
    assert sources.identity(module.Uses(object())) is None


def test_a_host_without_a_file_is_refused():
    lost = types.FunctionType((lambda stream: None).__code__, {}, "lost")
    lost.__module__ = "no_such_module"
    with pytest.raises(PlanError, match="is not defined in a file"):
        sources.module_of(lost)


@needs_dsl
def test_installed_code_is_told_by_its_version():
    from tests.languages.cute import kernels_for_tests as kernels

    found = {path.name for path in sources.project_files(kernels.Gemm(64, 2))}
    assert found == {"kernels_for_tests.py", "signature.py"}


def test_wheels_may_be_installed_anywhere(monkeypatch, tmp_path):
    texts = {"tools": "VALUE = 1\n", "hosts": "import tools\n\n\ndef host():\n    tools\n"}
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path / name)
    host = importlib.import_module("hosts").host
    assert {path.name for path in sources.project_files(host)} == {"hosts.py", "tools.py"}
    (tmp_path / "tools/tools-1.dist-info").mkdir()
    identity._holds_wheels.cache_clear()
    identity.installed.cache_clear()
    sources._files.cache_clear()
    assert {path.name for path in sources.project_files(host)} == {"hosts.py"}


def test_an_object_among_the_settings_is_told_by_its_own(module):
    told = [sources.identity(module.Uses(module.Uses(n))) for n in (1, 1, 2)]
    assert told[0] is not None
    assert told[0] == told[1] != told[2]
    assert sources.identity(module.Uses(module.Plain())) not in told


def test_objects_that_hold_each_other_cannot_be_told(module):
    one = module.Uses(1)
    one.other = module.Uses(one)
    assert sources.identity(one) is None
