from __future__ import annotations

import dataclasses
import json
import re

import cuda.tile as ct
import pytest
import torch
from cuda.tile import TileTypeError

from generators.pages import api
from mla_var3.interpreter.redirect import redirected
from mla_var3.knowledge.references import model


@pytest.fixture(scope="module")
def made(site):
    return {page.path: page for page in api.pages(site)}


def test_a_chapter_has_every_name_with_its_anchor(site, made):
    for reference in model.load_all(site.root):
        index = made[api.page_path(reference)].content
        for part in reference.parts:
            content = made[api.page_path(reference, part)].content
            for entry in part.entries:
                assert f"{{ #{api.anchor(entry.key)} " in content
                assert f"({part.key}.md#{api.anchor(entry.key)})" in index


def test_a_name_is_found_by_what_readers_say_of_it(site, made):
    for reference in model.load_all(site.root):
        for part in reference.parts:
            front = made[api.page_path(reference, part)].content.split("---")[1]
            (sections,) = re.findall(r"^sections: (.+)$", front, re.MULTILINE)
            own = [e for e in part.entries if e.sought and not e.on_top]
            said = {api.anchor(e.key): list(e.sought) for e in own}
            assert said
            assert json.loads(sections) == said


def test_an_operation_shows_what_is_known_of_it(made):
    content = made["api/cutile/reductions.md"].content
    (told,) = re.findall(r"### `ct\.sum` .*?(?=\n### )", content, re.DOTALL)
    assert "`sum(x, /, axis=None, *, keepdims=False" in told
    assert "Sum along an axis" in told
    assert "becomes `raw_binary_arith(add)`, `tile_reduce`" in told
    assert "every dtype but e4m3, e5m2" in told
    assert "[snippet 1](#snippet-1)" in told
    assert "used by [" in told


def test_an_enum_of_a_signature_leads_to_its_members_which_stand_once_above(made):
    content = str(made["api/cutile/atomics.md"].content)
    above, _, entries = content.partition("### `ct.atomic_add`")
    order = "- [`ct.MemoryOrder`](memory.md#ct.MemoryOrder): `WEAK`, `RELAXED`"
    assert above.count(order) == 1
    assert "- [`ct.MemoryScope`](memory.md#ct.MemoryScope): " in above
    told = entries.partition("\n### ")[0]
    assert "choose from [`ct.MemoryOrder`](memory.md#ct.MemoryOrder), [`ct.MemoryScope`]" in told
    pairs = str(made["api/cute/copies.md"].content)
    assert "(mma.md#cute.nvgpu.tcgen05.CtaGroup)" in pairs
    assert "Values that signatures" not in str(made["api/cutile/compiling.md"].content)


def test_an_entry_shows_a_call_of_its_snippet(made):
    content = str(made["api/cutile/atomics.md"].content)
    told = content.partition("### `ct.atomic_add`")[2].partition("\n### ")[0]
    assert "For example `ct.atomic_add(sums, (0, ct.arange(8, dtype=ct.int32)), row)`." in told
    method = content.partition("### `ct.TiledView.atomic_store_add`")[2].partition("\n### ")[0]
    assert "For example `y.tiled_view((1, 8)).atomic_store_add(" in method


def test_an_entry_says_arguments_result_what_if_left_out_and_successor(made):
    def told(page: str, name: str) -> str:
        return str(made[page].content).partition(f"### `{name}` ")[2].partition("\n### ")[0]

    parts = told("api/cute/copies.md", "cute.nvgpu.cpasync.tma_partition")
    assert "- `cta_layout`: the layout of those CTAs: `cute.make_layout(1)` is no" in parts
    assert "- **Gives** two tensors, shared memory first" in parts
    hint = told("api/cute/copies.md", "cute.nvgpu.cpasync.prefetch_descriptor")
    assert "- **Left out:** the result is the same." in hint
    old = told("api/cute/layouts.md", "cute.FastDivmodDivisor")
    successor = "cute.FastDivmodDivisorV2"
    assert f"- **Deprecated:** take [`{successor}`](layouts.md#{successor})" in old
    assert "- **" not in told("api/cute/layouts.md", "cute.round_up")


def test_results_have_the_dtypes_that_entries_say(made):
    @ct.kernel
    def kernel(wide, narrow, places):
        x, y = ct.load(wide, (0, 0), (2, 4)), ct.load(narrow, (0, 0), (2, 4))
        place = ct.argmax(x, axis=1)
        ct.static_assert(place.dtype == ct.int32)
        ct.static_assert(place.shape == (2,))
        one, kept = ct.argmax(y), ct.argmin(y, 1, keepdims=True)
        ct.static_assert(one.dtype == ct.int32)
        ct.static_assert(one.shape == ())
        ct.static_assert(kept.shape == (2, 1))
        total, most, power = ct.sum(y, 1), ct.max(y, 1), ct.exp2(y)
        ct.static_assert(total.dtype == ct.bfloat16)
        ct.static_assert(most.dtype == ct.bfloat16)
        ct.static_assert(power.dtype == ct.bfloat16)
        larger, chosen, plain = ct.maximum(x, y), ct.where(y > 0, y, x), ct.where(y > 0, y, 0.0)
        ct.static_assert(larger.dtype == ct.float32)
        ct.static_assert(chosen.dtype == ct.float32)
        ct.static_assert(plain.dtype == ct.bfloat16)
        block, tiles = ct.bid(0), ct.cdiv(ct.bid(0) + 7, 4)
        ct.static_assert(block.dtype == ct.int32)
        ct.static_assert(tiles.dtype == ct.int32)
        ct.store(places, (0,), place)

    @ct.kernel
    def narrowing(wide, narrow):
        ct.store(narrow, (0, 0), ct.load(wide, (0, 0), (2, 4)))

    wide = torch.tensor([[0.0, 3.0, 3.0, 1.0], [5.0, 1.0, 2.0, 0.0]])
    narrow, places = wide.bfloat16(), torch.zeros(2, dtype=torch.int32)
    with redirected():
        ct.launch(None, (1,), kernel, (wide, narrow, places))
        with pytest.raises(TileTypeError, match="cannot implicitly cast float32 to bfloat16"):
            ct.launch(None, (1,), narrowing, (wide, narrow))
    assert places.tolist() == [1, 0]
    content = str(made["api/cutile/reductions.md"].content)
    assert "**Gives** int32, whatever the tile's dtype" in content


@pytest.mark.parametrize("order", ct.MemoryOrder)
@pytest.mark.parametrize("scope", ct.MemoryScope)
def test_an_atomic_takes_the_orders_and_scopes_that_the_chapter_names(order, scope):
    @ct.kernel
    def kernel(x):
        ct.atomic_add(x, 0, 1, memory_order=order, memory_scope=scope)

    named = (order.name in {"RELAXED", "ACQUIRE", "RELEASE", "ACQ_REL"}) and (
        scope.name in {"BLOCK", "DEVICE", "SYS"}
    )
    x = torch.zeros(1, dtype=torch.int32)
    with redirected():
        if named:
            ct.launch(None, (1,), kernel, (x,))
            assert x.item() == 1
        else:
            with pytest.raises(TileTypeError, match=r"memory (ordering|order|scope)"):
                ct.launch(None, (1,), kernel, (x,))


def test_a_product_shows_its_instruction_by_dtype_as_it_was_compiled(made):
    content = made["api/cutile/reductions.md"].content
    (told,) = re.findall(r"### `ct\.mma` .*?(?=\n### )", content, re.DOTALL)
    rows = dict(re.findall(r"^\| (\S+ \| \S+ \| \S+) +\| (.+) \|$", told, re.M))
    assert rows["bfloat16 | float32 | 64"] == "HGMMA.64x64x16.F32.BF16 | UTCHMMA"
    assert rows["float32 | float32 | 64"].count("no tensor core: FMUL") == 2
    assert "tf32" in told


def test_a_snippet_stands_as_in_its_file(site, made):
    content = made["api/cutile/memory.md"].content
    assert 'title="examples/api/cutile/memory.py:11"' in content
    assert "ct.store(y, (i,), 2 * tile)" in content
    assert "nox -s run -- examples/api/cutile/memory.py" in content


def test_converted_documents_have_a_page_where_they_are(site, tmp_path):
    assert api.converted(dataclasses.replace(site, root=tmp_path)) == []
    folder = tmp_path / "third_party/cutlass-docs"
    for name, text in (
        ("docs/cpp/layout.md", "# Layout\n\n## Strides\n"),
        ("api/a.h.md", "# a.h\n"),
    ):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)
    local = dataclasses.replace(site, root=tmp_path, copied=set())
    (page,) = api.converted(local)
    assert "[Layout](../../files/third_party/cutlass-docs/docs/cpp/layout.md.txt): Strides" in (
        page.content
    )
    assert local.copied == {
        "third_party/cutlass-docs/docs/cpp/layout.md", "third_party/cutlass-docs/api/a.h.md"
    }  # fmt: skip
