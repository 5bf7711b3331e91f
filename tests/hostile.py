"""Hostile text for parsers: what a seed makes of a sample, and which parsers take such text."""

from __future__ import annotations

import json
import random
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mla_var3 import devices, evidence, inputs
from mla_var3.examples import store
from mla_var3.knowledge import pages
from mla_var3.languages.cutile.remarks import parse_remarks
from mla_var3.paths import repo_root
from mla_var3.profiling.annotation import read_table, stage_values
from mla_var3.profiling.timeline import parse_chrome, parse_nsys
from mla_var3.static import sass
from tests.languages.cutile.test_remarks import record
from tests.profiling.reports import FIXTURES
from tests.profiling.test_timeline import TRACE
from tests.static.test_sass import LISTING

#: What is put in the place of a piece: numbers that do not fit, nests without end, odd characters.
PIECES = (
    "9" * 5000, "-" + "9" * 30, "1e999", "nan", "0x" + "f" * 400, "1_000", "[" * 3000,
    "{a: " * 800, '{"a":' * 2000, "(" * 500, "\n" * 300, " " * 400, "\0", "\x1b[31m", "\u202e",
    "\ud800", "é漢字", "'", '"', "---\n", "...", "&a [*a]", "*a", "!!python/object:os.system",
    "<script>alert(1)</script>", "../" * 40, ",", ":", "|", "null", "true", "[]", "{}", "",
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


@dataclass(frozen=True)
class Parser:
    """A parser, and what it takes: a text, or a file of that name below a checkout."""

    name: str
    sample: str
    parse: Callable[[Any], Any]
    file: str = ""

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
    Parser("record", _first("results/static/sm_90/cutile/**/*.json"), evidence.read, "record.json"),
]  # fmt: skip
