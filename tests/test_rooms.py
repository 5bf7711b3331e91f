"""Names that may stand in some rooms only; what imports what is import-linter's (nox -s lint)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mla_var3
from mla_var3.languages import languages

ROOT = Path(mla_var3.__file__).parent
#: Rooms that may import a package, by package.
ALLOWED = {
    "cuda.tile": ("languages/cutile", "interpreter"),
    "cutlass": ("languages/cute", "emulator", "examples"),
}
#: cuTile's words, which nothing but its own rooms may know.
WORDS = ("num_worker_warps", "num_ctas", "tileiras")
#: Where a word of cuTile's means another thing of the same name.
NAMESAKES = {"num_ctas": ("emulator/triton.py",)}


def sources() -> list[Path]:
    """Python files of the package; the kernels have rules of their own."""
    return [p for p in ROOT.rglob("*.py") if not p.is_relative_to(ROOT / "kernel")]


def imported(path: Path) -> set[str]:
    """Modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def inside(path: Path, rooms: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(ROOT / room) for room in rooms)


@pytest.mark.parametrize("package", ALLOWED)
def test_a_languages_package_is_imported_in_its_rooms_alone(package):
    places = {
        path.relative_to(ROOT).as_posix()
        for path in sources()
        if any(name == package or name.startswith(f"{package}.") for name in imported(path))
    }
    assert places, f"nothing imports {package}: the name has changed"
    assert {p for p in places if not inside(ROOT / p, ALLOWED[package])} == set()


@pytest.mark.parametrize("word", WORDS)
def test_cutiles_words_stand_in_its_rooms_alone(word):
    places = {p for p in sources() if word in p.read_text(encoding="utf-8")}
    outside = {
        p.relative_to(ROOT).as_posix()
        for p in places
        if not inside(p, (*ALLOWED["cuda.tile"], *NAMESAKES.get(word, ())))
    }
    assert outside == set()


@pytest.mark.parametrize("word", WORDS)
def test_generators_ask_the_language_for_cutiles_words(word):
    pages = sorted((Path(__file__).parents[1] / "generators").rglob("*.py"))
    assert pages
    assert [p.name for p in pages if word in p.read_text(encoding="utf-8")] == []


#: What runs the kernels of one language alone; the emulator runs all that compile to PTX.
PRODUCTS = {"cutile": "interpreter"}
#: Key of each language and the package of its kernels, by its folder.
LANGUAGES = {
    type(language).__module__.split(".")[2]: (language.key, language.package)
    for language in languages().values()
}
DOORS = sorted((ROOT / "runtime").glob("*_kernel.py"))


def test_languages_are_the_folders_of_their_room():
    folders = {path.parent.name for path in (ROOT / "languages").glob("*/__init__.py")}
    assert folders == LANGUAGES.keys() > PRODUCTS.keys()
    assert all((ROOT / "kernel" / package).is_dir() for _, package in LANGUAGES.values())
    assert DOORS


def rooms_of_others(language: str) -> tuple[str, ...]:
    """Packages that neither a language nor its kernels may name."""
    found = []
    for other, (_, kernels) in LANGUAGES.items():
        if other != language:
            room = f"mla_var3.languages.{other}"
            found += [room, f"mla_var3.kernel.{kernels}"]
            found += [f"mla_var3.runtime.{p.stem}" for p in DOORS if strangers(p, (room,))]
    return tuple(found)


def named(path: Path) -> set[str]:
    """Modules that a file imports or names in a string, for type checkers alone too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    strings = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return imported(path) | {value for value in strings if value.startswith("mla_var3.")}


def strangers(path: Path, rooms: tuple[str, ...]) -> set[str]:
    """What a file names of some rooms."""
    return {name for name in named(path) if name.startswith(rooms)}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_language_names_no_other(language):
    _, kernels = LANGUAGES[language]
    others = rooms_of_others(language)
    products = {runs for other, runs in PRODUCTS.items() if other != language}
    own = [*(ROOT / "languages" / language).rglob("*.py")]
    assert own
    inner = (*others, *(f"mla_var3.{product}" for product in products))
    found = {path.name: strangers(path, inner) for path in own}
    found |= {
        path.name: strangers(path, others) for path in (ROOT / "kernel" / kernels).rglob("*.py")
    }
    assert {name: said for name, said in found.items() if said} == {}


@pytest.mark.parametrize(
    "line",
    [
        "from mla_var3.languages.cutile.kernel import CtKernel",
        "from mla_var3.languages import cutile",
        "if TYPE_CHECKING:\n    from mla_var3.languages.cutile import kernel",
        "def f():\n    import mla_var3.kernel.cutile.mla.flash_mla",
        "kernel = importlib.import_module('mla_var3.languages.cutile.kernel')",
        "from mla_var3.runtime.ct_kernel import CtKernel",
    ],
)
def test_a_violation_is_seen(line, tmp_path):
    path = tmp_path / "tiling.py"
    path.write_text(line, encoding="utf-8")
    assert strangers(path, rooms_of_others("cute"))
    assert not strangers(path, rooms_of_others("cutile"))
