"""Hostile text for parsers: what a seed makes of a sample, and which parsers take such text."""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import io
import json
import random
import re
import runpy
import shutil
import struct
import sys
import tarfile
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from generators.model import terms
from generators.pages import lessons
from mla_var3 import devices, evidence, inputs, loader
from mla_var3.app import counts
from mla_var3.cache import Cache
from mla_var3.campaign import sweepspec
from mla_var3.emulator import seeded
from mla_var3.emulator.launcher import launch
from mla_var3.emulator.options import Options
from mla_var3.emulator.program import Program
from mla_var3.errors import InputError
from mla_var3.examples import learning, pin, store
from mla_var3.gpuless import ptx, tables
from mla_var3.knowledge import pages
from mla_var3.languages.cutile.remarks import parse_remarks
from mla_var3.paths import repo_root
from mla_var3.profiling.annotation import read_table, stage_values
from mla_var3.profiling.timeline import parse_chrome, parse_nsys
from mla_var3.static import elf, sass
from tests.emulator.kernels import ALL
from tests.languages.cutile.test_remarks import record
from tests.profiling.reports import FIXTURES
from tests.profiling.test_timeline import TRACE
from tests.static.test_sass import LISTING

#: What a text would run, were any of it ever taken for Python.
CALL = "__import__('builtins').ran.append(1)"
#: What is put in the place of a piece: numbers that do not fit, nests without end, odd characters.
PIECES = (
    "9" * 5000, "-" + "9" * 30, "1e999", "nan", "0x" + "f" * 400, "1_000", "[" * 3000,
    "{a: " * 800, '{"a":' * 2000, "(" * 500, "\n" * 300, " " * 400, "\0", "\x1b[31m", "\u202e",
    "\ud800", "é漢字", "'", '"', "---\n", "...", "&a [*a]", "*a", "!!python/object:os.system",
    "<script>alert(1)</script>", "../" * 40, ",", ":", "|", "null", "true", "[]", "{}", "", CALL,
    f"!!python/object/apply:eval [{json.dumps(CALL)}]", "{{ evidence }}", "${" + CALL + "}",
)  # fmt: skip
#: What takes the place of a token of PTX, or stands beside it.
TOKENS = (
    f"%x[{CALL}]", f"%tid.x or {CALL}", f"%{CALL}", "%r1] = 0; import os; x = [0", "%r1[0].base",
    "%np.load", "%machine.x", "%tid.__class__", "%tid", "%r1\nimport os", "%r1;%r2", "'", '"', "#",
    "%r1)(", "(lambda: 0)()", "%ran.append(1)", "{%r1, %r1[0]}", "[%rd1+ran.append(1)]", "\\", "`",
    "%r99999999999999999999", "9" * 5000, "0x" + "f" * 600, "-", "0f", "0fzz", "1e999", "nan", "\0",
    ".b9999999999", ".u99999999999999999999999", ".v4", "f32x2", "b32", "{" * 400, "[" * 400, "٣",
    "%r٣", "@%p0", "@!ran", ":", "::", "<9999999999>", "[99999999999]", "_", "!", "|", ",",
)  # fmt: skip


def mangled(sample: str, seed: int) -> str:
    """The sample with one to eight edits, all told by the seed."""
    rng = random.Random(seed)
    text = sample
    for _ in range(rng.randint(1, 8)):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.choice((0, 1, 2, 8, 40, 400)))
        cut = text[start:end]
        put = rng.choice((*PIECES, cut * 3, cut[::-1], chr(rng.randrange(1, 0x3000)) * 3))
        text = text[:start] + put + text[end:]
    return text


def with_other_tokens(text: str, seed: int) -> str:
    """The PTX with one to five of its tokens replaced, doubled or swapped."""
    rng = random.Random(seed)
    tokens = re.split(r"([%$.]?[\w$.]+|\W)", text)
    for _ in range(rng.randint(1, 5)):
        at = rng.randrange(len(tokens))
        old, new = tokens[at], rng.choice(TOKENS)
        tokens[at] = rng.choice((new, old + new, old * 2, rng.choice(tokens)))
    return "".join(tokens)


@dataclass(frozen=True)
class Parser:
    """A parser, and what it takes: a text, or a file of that name below a checkout.

    Attributes:
        name: How it is called.
        sample: A text that it reads.
        parse: Reads one.
        file: What the file is called; empty where it takes the text itself.
        mangle: Makes another text of the sample and a seed.
    """

    name: str
    sample: str
    parse: Callable[[Any], Any]
    file: str = ""
    mangle: Callable[[str, int], str] = mangled

    def __call__(self, text: str, folder: Path) -> None:
        """Parse a text, from a file where the parser reads one."""
        if not self.file:
            self.parse(text)
            return
        path = folder / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        self.parse(path)


def _first(pattern: str) -> str:
    return min(repo_root().glob(pattern)).read_text(encoding="utf-8")


CHROME = json.dumps(
    {"traceEvents": [{"cat": "kernel", "name": "k", "ts": 1.5, "dur": 2, "args": {"stream": 7}}]}
)
USAGE = "Fatbin elf code:\n Function k:\n  REG:168 STACK:0 SHARED:1024 LOCAL:0 CONSTANT[0]:900\n"
ATTRIBUTES = "Attribute:\tEIATTR_REQNTID\n\tFormat:\tEIFMT_SVAL\n\tValue:\t0x180 0x1 0x1\n"
ALLOCATION = "mov.u32 %r7, 512;\ntcgen05.alloc.cta_group::1.sync.aligned.b32 [%rd1], %r7;\n"


def _toml(text: str) -> Any:
    return inputs.parsed(tomllib.loads, text, "text", "TOML")


def _mangled_ptx(text: str, seed: int) -> str:
    return (with_other_tokens if seed % 2 else mangled)(text, seed)


def _run_ptx(name: str, text: str) -> None:
    """Read a text, lower it and take its first steps."""
    kernel = ALL[name]
    launch(
        Program(ptx.parse(text)), kernel.case().arguments, kernel.cluster, kernel.block,
        cluster=kernel.cluster, options=Options(max_steps=300, jobs=1),
    )  # fmt: skip


#: Between the manifest of a bundle and its part.
_PART = "\n==== part ====\n"


def _bundle() -> str:
    """A bundle as one text, each byte a character."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for name, content in (("project.tar.gz", _project()), ("wheels/pip-1.whl", b"PK")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    part = whole.getvalue()
    described = {
        "python": ".".join(map(str, sys.version_info[:2])), "commit": "c" * 40,
        "requirements": ["numpy==2.0"],
        "parts": [{"name": "part-000", "bytes": len(part), "sha256": _sha(part)}],
    }  # fmt: skip
    return json.dumps(described) + _PART + part.decode("latin-1")


def _project() -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        member = tarfile.TarInfo("src/x.py")
        member.size = 2
        tar.addfile(member, io.BytesIO(b"x\n"))
    return gzip.compress(whole.getvalue(), mtime=0)


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@functools.cache
def _unpacker() -> dict[str, Any]:
    """The script that unpacks bundles, without what it does after that."""
    script = runpy.run_path(str(repo_root() / "scripts/unpack-bundle.py"))
    script["main"].__globals__["install"] = lambda *_: None
    return script


def _unpack(path: Path) -> None:
    """Unpack a bundle, whose digests are those of its part where it says so by its length."""
    script = _unpacker()
    text = path.read_bytes().decode("utf-8", "replace")
    manifest, _, part = text.partition(_PART)
    content = part.encode("latin-1", "replace")
    if len(text) % 2:  # As one makes it who packs what he likes.
        with contextlib.suppress(ValueError, RecursionError, LookupError, TypeError):
            about = json.loads(manifest)
            about["parts"][0] |= {"bytes": len(content), "sha256": _sha(content)}
            manifest = json.dumps(about)
    here, to = path.with_name("packed"), path.with_name("unpacked")
    shutil.rmtree(to, ignore_errors=True)
    here.mkdir(exist_ok=True)
    (here / "bundle.json").write_bytes(manifest.encode("utf-8", "surrogatepass"))
    (here / "part-000").write_bytes(content)
    script["main"].__globals__["__file__"] = str(here / "unpack.py")
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(said):
        code = script["main"]([str(to)])
    if code:
        assert not to.exists(), "something is left of it"
        raise InputError("bundle", said.getvalue().rstrip("\n"))
    outside = {p.name for p in path.parent.iterdir()} - {path.name, "packed", "unpacked"}
    assert not outside, f"it wrote {outside} beside its folder"


def _cubin(text: str) -> str:
    return elf.code_digest(text.encode("utf-8", "surrogatepass"))


def _sample_cubin() -> str:
    """An ELF file with one section of code, whose bytes are all characters of ASCII."""
    names = b"\0.text.k\0.shstrtab\0"
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack(
        "<HHIQQQIHHHHHH", 2, 62, 1, 0, 0, 64 + 32, 0, 64, 0, 0, 64, 3, 2
    )  # fmt: skip
    parts = b"code".ljust(8) + names.ljust(24, b"\0")
    rows = bytes(64)
    for name, kind, at, size in ((1, 1, 64, 8), (9, 3, 72, len(names))):
        rows += struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at, size, 0, 0, 1, 0)
    return (header + parts + rows).decode("ascii")


def _cached(path: Path) -> None:
    """Read an entry of the cache of compiles; one that is not sound is none, and goes."""
    cache, key = Cache(path.parent / "cache"), "ab" * 32
    place = cache.folder / key[:2] / key
    for name in ("manifest.json", "k.sass"):
        cache.put(key, {"k.sass": b"text", "facts.json": b"{}"})
        (place / name).write_bytes(path.read_bytes())
        assert (cache.get(key) is not None) == place.exists(), "half of an entry is left"
    shutil.rmtree(cache.folder)


def _manifest(path: Path) -> None:
    """Read the manifest of an exported library, whatever the library itself holds."""
    with mock.patch.object(loader, "_open", return_value=mock.MagicMock()):
        for kernel in loader.Library(path).kernels:
            for about in kernel.arguments:
                loader.misfit(about, 1)


MANIFEST = json.dumps({
    "schema_version": 1, "name": "k", "target": "sm_90a", "library": "k.so", "sha256": "0" * 64,
    "failures": [{"tiling": {"m": 1}, "reason": "too large"}],
    "kernels": [{
        "prefix": "k0", "symbol": "k0_launch", "tiling": {"m": 64}, "registers": [90],
        "shared_bytes": [1024], "threads_per_block": [128],
        "arguments": [
            {"kind": "scalar", "name": "n", "dtype": "Int32"},
            {"kind": "tensor", "name": "x", "dtype": "float16", "shape": [None, 4], "alignment": 16,
             "strides": [None, 1], "multiple_of": 8, "stride_multiples": [8, 1],
             "shape_bits": 32, "stride_bits": 64},
        ],
    }],
})  # fmt: skip


def _learning(path: Path) -> None:
    """Read learning paths, which says its faults beside what it read."""
    _, faults = learning.read(path.parents[2])
    for _, said in faults:
        if not said.startswith("step "):
            raise InputError("path", said)


PARSERS = [
    Parser("nsys", TRACE, parse_nsys),
    Parser(
        "nsight-python", (FIXTURES / "nsight-python-0.9.6.csv").read_text(encoding="utf-8"),
        lambda text: stage_values(read_table(text)),
    ),
    Parser("chrome", CHROME, lambda path: parse_chrome(inputs.read_json(path)), "trace.json"),
    Parser("sass", LISTING, sass.parse_listing),
    Parser("resources", USAGE, sass.parse_resources),
    Parser("attributes", ATTRIBUTES, lambda text: sass.block_threads(sass.parse_attributes(text))),
    Parser(
        "tensor memory", ALLOCATION,
        lambda text: sass.tensor_memory_columns(text.encode("utf-8", "surrogatepass")),
    ),
    Parser("remarks", record(1, 7) + record(2, 9), parse_remarks),
    Parser("toml", _first("knowledge/devices/*.toml"), _toml),
    Parser("device", _first("knowledge/devices/*.toml"), devices.model.parse, "device.toml"),
    Parser(
        "example", _first("knowledge/examples/*.toml"),
        lambda path: store.read(path.parents[2]), "knowledge/examples/one.toml",
    ),
    Parser(
        "page", _first("knowledge/optimizations/*.md"),
        lambda path: pages.load(path, path.parents[2]), "knowledge/optimizations/one.md",
    ),
    *(
        Parser(f"ptx {n}", k.ptx(), functools.partial(_run_ptx, n), mangle=_mangled_ptx)
        for n, k in ALL.items()
    ),
    Parser("bundle", _bundle(), _unpack, "bundle/whole"),
    Parser("record", _first("results/static/sm_90/cutile/**/*.json"), evidence.read, "record.json"),
    Parser("cache entry", json.dumps({"k.sass": "0" * 64}), _cached, "cached"),
    Parser("cubin", _sample_cubin(), _cubin),
    Parser("manifest", MANIFEST, _manifest, "manifest.json"),
    Parser(
        "learning path", _first("knowledge/learning-paths/*.toml"), _learning,
        "knowledge/learning-paths/one.toml",
    ),
    Parser("term", _first("docs/glossary/*.md"), terms.read, "docs/glossary/one.md"),
    Parser(
        "lessons", (repo_root() / lessons.SOURCE).read_text(encoding="utf-8"),
        lambda path: lessons.load(path.parents[2]), lessons.SOURCE,
    ),
    Parser(
        "pin", (repo_root() / pin.PIN).read_text(encoding="utf-8"),
        lambda path: pin.load(path.parents[1]), pin.PIN,
    ),
    Parser(
        "sweep", _first("examples/sweeps/*.toml"),
        lambda path: sweepspec.cases_of(sweepspec.read(path)), "sweep.toml",
    ),
    Parser("counts", _first("results/conformance/counts.json"), counts.read, "counts.json"),
    Parser("suite", _first("results/conformance/tilegym.json"), tables.read, "suite.json"),
    Parser("seeded", (repo_root() / seeded.BUGS).read_text("utf-8"), seeded.read, "seeded.toml"),
    Parser(
        "seeded table", (repo_root() / seeded.TABLE).read_text("utf-8"), seeded.table, "table.json"
    ),
]  # fmt: skip
