"""The calculator and the filter in a browser, against the library and the knowledge."""

from __future__ import annotations

import re
import shutil

import pytest

from generators.mla import advisor
from generators.mla import regimes as regimes
from generators.pages import catalogue
from generators.write import diff
from mla_var3.knowledge import changes
from mla_var3.workloads import mla
from mla_var3.workloads.mla import regimes as library
from tests.generators.checking import ROOT, html_of

pytestmark = pytest.mark.browser
pytest.importorskip("playwright.sync_api")
#: What docs/assets/js/lazy.js and the theme give the scripts on the site.
FRAME = """<!doctype html><html lang="en"><meta charset="utf-8"><title>x</title><body>{body}
<script>const hypermla = {{onPage: (start) => start()}};</script>
<script>{script}</script></body></html>"""


@pytest.fixture(scope="module")
def browser(running_playwright):
    executable = shutil.which("chromium") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("needs Chromium, which is not installed")
    opened = running_playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
    yield opened
    opened.close()


@pytest.fixture
def show(browser, tmp_path):
    """Opens HTML with one of the project's scripts from a file; any error fails the test."""
    faults = []

    def open_(body: str, script: str, query: str = ""):
        files = ("formula.js", script)
        source = "\n".join((ROOT / "docs/assets/js" / name).read_text() for name in files)
        (tmp_path / "page.html").write_text(FRAME.format(body=body, script=source))
        page = browser.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        page.goto(f"{(tmp_path / 'page.html').as_uri()}{query}")
        return page

    yield open_
    assert faults == []


# -- calculator ------------------------------------------------------------------------------------

INPUTS = [
    {"b": 64, "h": 128, "s": 1, "t": 4096},
    {"b": 64, "h": 128, "s": 8, "t": 4096},
    # Within the tie of the mixed design, on one of the devices each.
    {"b": 64, "h": 128, "s": 103, "t": 4096},
    {"b": 64, "h": 128, "s": 165, "t": 4096},
    {"b": 64, "h": 128, "s": 78, "t": 4096},
    {"b": 32, "h": 128, "s": 16, "t": 4096},
    {"b": 1, "h": 16, "s": 1, "t": 131072},
    {"b": 7, "h": 3, "s": 5, "t": 1000},
    {"b": 256, "h": 128, "s": 64, "t": 1},
    {"b": 4, "h": 128, "s": 512, "t": 8192},
    {"b": 1, "h": 1, "s": 1, "t": 65},
    {"b": 8, "h": 32, "s": 4, "t": 16384, "d": 64, "k": 256, "p": 32, "w": 1},
    {"b": 8, "h": 32, "s": 4, "t": 16384, "d": 512, "k": 512, "p": 64, "w": 4},
]


#: Fills fields at once: each of them alone would have the page answer.
TYPE = """sizes => {
    const field = (name) => document.querySelector(`input[name=${name}]`);
    for (const [name, value] of Object.entries(sizes)) field(name).value = value;
    field("b").dispatchEvent(new Event("input", {bubbles: true}));
}"""


@pytest.mark.parametrize("key", ["nvidia-h200-sxm", "nvidia-b200", "nvidia-rtx-5090"])
def test_the_calculator_equals_the_library(show, key):
    page = show(regimes.calculator(), "calculator.js")
    page.locator("summary").click()
    page.select_option("select[name=device]", key)
    ceilings = library.ceilings_of(key)
    for sizes in INPUTS if key == "nvidia-h200-sxm" else INPUTS[1:7]:
        shape = library.Shape(**{k: v for k, v in sizes.items() if k not in "st"})
        full = {**vars(shape), "s": sizes["s"], "t": sizes["t"]}
        page.evaluate(TYPE, full)
        cell = library.cell(shape, sizes["s"], sizes["t"], ceilings)
        rows = page.locator("tbody tr")
        assert rows.count() == len(library.KERNELS)
        for index, kernel in enumerate(library.KERNELS):
            row = rows.nth(index)
            assert row.get_attribute("data-kernel") == kernel
            time = float(row.get_attribute("data-us"))
            assert time == pytest.approx(cell.time_us[kernel], rel=1e-12), (sizes, kernel)
            if kernel == "mla_var6_plus":
                assert int(row.get_attribute("data-n")) == cell.n, sizes
                assert f"n = {cell.n}" in row.inner_text()
            work = library.cost(kernel, shape, sizes["s"], sizes["t"], cell.n)
            shown = row.locator("td").all_inner_texts()
            assert shown[0] == scaled(work.flops, "FLOP")
            assert shown[1] == scaled(work.bytes, "B")
        answer = page.locator(".calculator-answer").inner_text()
        reads = library.READS[cell.winner]
        assert answer.startswith(f"By the cost model attention is fastest over {reads}"), sizes
        bound = {"compute": "arithmetic"}.get(cell.bound, cell.bound)
        assert f"bound by {bound}" in answer
        if cell.gain > 1.005:
            assert f"{cell.gain:.2f}x" in answer
        assert f"{ceilings.tflops:g} TFLOP/s" in answer
        assert page.locator("tr.calculator-winner").get_attribute("data-kernel") == cell.winner


ANSWER = {
    "device": "nvidia-h200-sxm", "b": 32, "h": 128, "s": 32, "t": 4096,
    "page": 0, "lengths": "equal", "mask": "causal",
}  # fmt: skip
MEASURED = {
    **advisor.nearness(),
    "pages": advisor.PAGES,
    "lengths": advisor.LENGTHS,
    "masks": advisor.MASKS,
    "names": {"deepseek_flash_mla": "FlashMLA"},
    "start": {"page": 0},
    "bounds": {"nvidia-h200-sxm": {"tflops": 989.5, "gbps": 4800.0, "power": "0"}},
    "runs": {"nvidia-h200-sxm": ["cutile-dsl"], "nvidia-b200": ["cutile-dsl"]},
    "peer": "FlashMLA",
    "answers": [
        {**ANSWER, "cache": "flash_mla", "found": [
            {"version": "fast v1", "us": 400.0, "share": 0.5, "run": "a", "stale": False, "n": 0},
            {"version": "next v2", "us": 800.0, "share": 0.25, "run": "a", "stale": False, "n": 0},
        ]},
        {**ANSWER, "cache": "mla_var6_plus", "found": [
            {"version": "mixed v4", "us": 840.0, "share": 0.2, "run": "a", "stale": False,
             "n": 320},
        ]},
        {**ANSWER, "s": 64, "cache": "mla_var6_plus", "found": [
            {"version": "mixed v4", "us": 12600.0, "share": 0.2, "run": "b", "stale": False,
             "n": 3008},
        ]},
        {**ANSWER, "s": 64, "cache": "flash_mla", "found": [
            {"version": "wide v1", "us": 6000.0, "share": 0.5, "run": "b", "stale": False, "n": 0},
        ]},
    ],
}  # fmt: skip


def advice(page, /, **inputs) -> str:
    for name, value in inputs.items():
        if name in ("device", "cache", "dtype", "page", "lengths", "mask"):
            page.select_option(f"select[name={name}]", value)
        else:
            page.fill(f"input[name={name}]", str(value))
    return page.inner_text(".advice")


def test_the_advisor_names_what_was_measured(show):
    page = show(regimes.calculator(MEASURED), "calculator.js")
    said = advice(page, b=32, s=32)
    assert said.startswith("Use fast v1")
    assert "Confidence high" in said
    where = "b=32 h=128 s=32 t=4096, contiguous cache, equal lengths, causal mask, bottom-right"
    assert f"Measured there ({where}): fast v1 400 us." in said
    assert "Next: next v2, 800 us (2x slower)" in said
    assert "nox -s profile -- fast v1 --b=32 --h=128 --s=32 --t=4096 --causal" in said
    # The model prefers the mix at s=32; the record refutes it.
    assert "Not advised: mixed v4" in said
    assert "2.1x slower" in said


PEER = {
    "version": "deepseek_flash_mla v0", "name": "FlashMLA", "us": 450.0, "run": "a", "tied": False,
}  # fmt: skip


def test_the_advisor_names_flashmla_where_it_was_in_the_run(show):
    [first, *rest] = MEASURED["answers"]
    start = {"cache": "flash_mla", **ANSWER}
    answers = [{**first, "peer": PEER}, *rest]
    page = show(regimes.calculator({**MEASURED, "answers": answers, "start": start}),
                "calculator.js")  # fmt: skip
    said = page.inner_text(".advice")
    assert "Confidence high: this very problem was measured" in said
    assert "FlashMLA in that run: 450 us (13 % slower)." in said
    shown = page.locator(".bars th").all_inner_texts()
    assert shown == ["fast v1", "next v2", "FlashMLA", "the bound"]
    times = [text.strip() for text in page.locator(".bars td").all_inner_texts()]
    us, by = re.fullmatch(r"([\d.]+) us, by (arithmetic|memory|power)", times[-1]).groups()
    for text, measured in zip(times, (400, 800, 450), strict=False):
        assert text == f"{measured} us, {round(100 * float(us) / measured)} % of the bound"
    assert f"can beat; {by} binds: " in said
    assert "A reference time is not a bound" in page.inner_text(".calculator-answer")


@pytest.mark.parametrize(
    ("peer", "told"),
    [
        ({**PEER, "run": "z"}, "FlashMLA was not in that run; in another: 450 us."),
        (None, "No time to compare with: FlashMLA was not timed at this problem."),
    ],
)
def test_the_advisor_compares_no_time_of_another_run(show, peer, told):
    [first, *rest] = MEASURED["answers"]
    answers = [{**first, "peer": peer}, *rest]
    page = show(regimes.calculator({**MEASURED, "answers": answers}), "calculator.js")
    said = advice(page, b=32, s=32)
    assert told in said
    assert page.locator(".bars th").all_inner_texts() == ["fast v1", "next v2", "the bound"]


def test_the_advisor_says_why_few_sequences_are_hard(show):
    known = {**MEASURED, "few": advisor.FEW, "sms": {"nvidia-h200-sxm": 132}}
    links = f'<div class="advice-pages" hidden><a href="o16/">{advisor.FEW}</a></div>'
    page = show(regimes.calculator(known) + links, "calculator.js")
    said = advice(page, b=4, h=16, s=1, t=32768)
    assert "4 sequences of 16 query rows are 4 tiles of 16 columns (0 unused; as 64 rows" in said
    assert "tiles of 8 columns (3 unused; as 64 rows it would be 59)" in advice(page, b=4, h=5)
    assert "4 tiles of 64 rows for 132" in advice(page, b=4, h=33)
    assert page.locator(".advice a", has_text=advisor.FEW).get_attribute("href").endswith("o16/")
    assert "multiprocessors" not in advice(page, b=128, h=128)
    assert "multiprocessors" not in advice(page, b=99, h=16)
    assert "99 tiles" not in advice(page, b=99, h=16)
    assert "98 tiles" in advice(page, b=98, h=16)


@pytest.mark.parametrize(("said", "heads"), [("h=16", "16"), ("heads=16", "16"), ("h=word", "128")])
def test_the_address_takes_the_short_names_of_sizes(show, said, heads):
    page = show(regimes.calculator(MEASURED), "calculator.js", f"?b=4&s=2&{said}")
    values = {name: page.input_value(f"input[name={name}]") for name in "bhs"}
    assert values == {"b": "4", "h": heads, "s": "2"}


def test_the_advisor_says_how_near_its_record_is(show):
    page = show(regimes.calculator(MEASURED), "calculator.js")
    said = advice(page, b=8, s=32, t=4096)
    assert "Confidence medium" in said
    assert "b is 8, measured 32" in said
    assert "The record reached 50 % of its own bound" in said
    assert "an estimate." in said
    assert "an estimate, and below 30 us a poor one" in advice(page, b=1, h=1, s=1, t=512)
    advice(page, b=8, h=128, s=32, t=4096)
    assert "heads=128" in page.evaluate("location.search")  # The theme marks what h names.
    assert "Confidence low" in advice(page, t=131072)
    assert "only bf16 was measured" in advice(page, dtype="fp16")
    assert advice(page, b=32, s=100, t=4096).startswith("Use wide v1")


def test_the_advisor_says_a_tie_and_what_was_faster_before(show):
    [first, *rest] = MEASURED["answers"]
    near = {**first["found"][1], "us": 408.0, "tied": True}
    stale = {**near, "version": "old v0", "us": 300.0, "stale": True}
    tie = {**first, "found": [first["found"][0], near], "outdated": stale, "newest": "next v2"}
    measured = {**MEASURED, "answers": [tie, *rest]}
    links = '<div class="advice-pages" hidden><a href="v/next/">next v2</a></div>'
    page = show(regimes.calculator(measured) + links, "calculator.js")
    said = advice(page, b=32, s=32)
    assert said.startswith("Tie: fast v1 or next v2")
    assert "fast v1 400 us, next v2 408 us." in said
    assert "Next:" not in said
    assert "Faster there before its sources changed: old v0, 300 us (stale)." in said
    link = page.locator(".advice-answer a")
    assert link.inner_text() == "next v2"
    assert link.evaluate("link => link.href.endsWith('v/next/')")
    assert "These are as fast within noise; next v2 is our newest." in said
    library = {**tie["found"][0], "language": "library", "version": "deepseek_flash_mla v1"}
    peer = {**tie, "found": [library, near]}
    page = show(regimes.calculator({**MEASURED, "answers": [peer, *rest]}) + links, "calculator.js")
    said = advice(page, b=32, s=32)
    assert said.startswith("Tie: FlashMLA or next v2")
    assert "next v2 is our newest; FlashMLA is a library." in said
    assert "nox -s profile -- deepseek_flash_mla v1 " in said


PAGED = {**ANSWER, "cache": "flash_mla", "page": 64, "found": [
    {"version": "paged v3", "us": 300.0, "share": 0.5, "run": "c", "stale": False, "n": 0},
]}  # fmt: skip
RAGGED = {**PAGED, "lengths": "ragged", "found": [{**PAGED["found"][0], "us": 350.0}]}


def test_the_table_below_the_advice_follows_what_is_typed(show):
    page = show(regimes.calculator(MEASURED), "calculator.js")
    advice(page, b=32, s=1, t=4096)
    advice(page, t=32768)
    shape = library.Shape(b=32)
    cell = library.cell(shape, 1, 32768, library.ceilings_of("nvidia-h200-sxm"))
    rows = page.locator("[data-times] tbody tr")
    assert [float(row.get_attribute("data-us")) for row in rows.all()] == pytest.approx(
        [cell.time_us[kernel] for kernel in library.KERNELS]
    )
    page.fill("input[name=t]", "no number")
    assert not page.locator("table:visible").count()


def test_the_advisor_answers_by_pages_lengths_and_mask(show):
    answers = [*MEASURED["answers"], PAGED, RAGGED]
    page = show(regimes.calculator({**MEASURED, "answers": answers}), "calculator.js")
    assert advice(page, b=32, s=32, page="0").startswith("Use fast v1")
    said = advice(page, page="64")
    assert said.startswith("Use paged v3")
    assert "(b=32 h=128 s=32 t=4096, pages of 64 tokens, equal lengths, causal mask" in said
    assert "--t=4096 --page=64 --causal" in said
    assert "ragged lengths, t/2 to 3t/2, causal mask, bottom-right: paged v3 350 us." in said
    assert "contiguous cache, equal lengths, causal mask, bottom-right: fast v1 400 us." in said
    assert "Bound for your sizes" in said
    said = advice(page, lengths="ragged")
    assert "paged v3 350 us." in said
    assert "--page=64 --lengths=ragged --causal" in said
    assert "Bound for your sizes" not in said
    assert "Confidence high" in said
    said = advice(page, page="0")
    assert "Nothing was measured on NVIDIA H200 SXM with such a cache: contiguous cache" in said
    assert "Records have: contiguous cache, equal lengths; pages of 64 tokens, equal" in said
    said = advice(page, lengths="equal", mask="none")
    assert said.startswith("Use fast v1")
    assert "Confidence medium" in said
    assert "measured with causal mask, bottom-right" in said
    assert "--causal" not in said


def test_a_decompressed_cache_has_no_pages(show):
    page = show(regimes.calculator({**MEASURED, "start": PAGED}), "calculator.js")
    assert page.input_value("select[name=page]") == "64"
    said = advice(page, cache="mla_var6_plus")
    assert said.startswith("Use mixed v4 with n = 320")
    assert "pages" not in said
    assert page.locator("select[name=page]").is_disabled()
    assert "--page" not in said


def test_sizes_that_no_record_has_are_named(show):
    page = show(regimes.calculator({**MEASURED, "start": ANSWER}), "calculator.js")
    page.locator("summary").click()
    assert "Confidence high" in page.inner_text(".advice")
    said = advice(page, k=256)
    assert "Confidence low" in said
    assert "k is 256, measured 512" in said


@pytest.mark.parametrize(("s", "t"), [(1, 4096), (4, 8192), (4096, 4096), (700, 100)])
def test_the_bound_of_masked_problems_counts_what_the_mask_leaves(show, s, t):
    page = show(regimes.calculator(MEASURED), "calculator.js")
    said = advice(page, b=8, s=s, t=t, mask="causal")
    shape, rates = library.Shape(b=8), MEASURED["bounds"]["nvidia-h200-sxm"]
    share = mla.seen_pairs(s, t, causal=True) / (s * t)
    mixes = [library.cost("mla_var6_plus", shape, s, t, n) for n in (*range(0, t, 64), t)]
    works = [*mixes, *(library.cost(k, shape, s, t) for k in ("flash_mla", "flash_attention"))]
    least = min(max(share * work.flops / rates["tflops"] / 1e6, work.bytes / rates["gbps"] / 1e3)
                for work in works)  # fmt: skip
    shown = re.search(r"Bound for your sizes: ([\d.]+) (us|ms)", said)
    assert float(shown[1]) * {"us": 1, "ms": 1e3}[shown[2]] == pytest.approx(least, rel=1e-3)


def test_the_advisor_names_the_nearest_record_with_as_many_queries(show):
    page = show(regimes.calculator(MEASURED), "calculator.js")
    assert "nearest record with s=" not in advice(page, b=32, s=20, t=8192)
    far = {**MEASURED["answers"][0], "b": 1024}
    wide = MEASURED["answers"][-1]
    page = show(regimes.calculator({**MEASURED, "answers": [far, wide]}), "calculator.js")
    said = advice(page, b=32, s=32, t=4096)
    assert said.startswith("Use wide v1")
    assert "with s=32 is further off: fast v1, 400 us at b=1024 h=128 s=32 t=4096, " in said


def test_a_stale_record_elsewhere_is_further_off(show):
    first = MEASURED["answers"][0]
    old = {**first["found"][0], "version": "old v0", "stale": True}
    answers = [first, {**first, "b": 4, "found": [old]}]  # at b=32 and b=4
    page = show(regimes.calculator({**MEASURED, "answers": answers}), "calculator.js")
    assert advice(page, b=8, s=32, t=4096).startswith("Use fast v1")
    assert advice(page, b=4, s=32, t=4096).startswith("Use old v0")


def test_the_bound_is_the_least_of_all_designs(show):
    page = show(regimes.calculator(MEASURED), "calculator.js")
    said = advice(page, b=8, s=4, t="32k", mask="none")
    shape, rates = library.Shape(b=8), MEASURED["bounds"]["nvidia-h200-sxm"]
    works = [library.cost("mla_var6_plus", shape, 4, 32768, n) for n in range(0, 32769, 64)]
    works.append(library.cost("flash_attention", shape, 4, 32768))
    least = min(max(work.flops / rates["tflops"] / 1e6, work.bytes / rates["gbps"] / 1e3)
                for work in works)  # fmt: skip
    assert f"Bound for your sizes: {float(f'{least:.4g}'):g} us" in said
    assert "which no kernel of these designs can beat" in said


def test_the_advisor_names_nothing_that_was_not_measured_or_cannot_run(show):
    page = show(regimes.calculator(MEASURED), "calculator.js")
    assert "Nothing was measured on" in advice(page, device="nvidia-b200")
    page = show(regimes.calculator({**MEASURED, "runs": {"nvidia-b200": []}}), "calculator.js")
    assert "No kernel here runs on" in advice(page, device="nvidia-b200")


def scaled(value: float, unit: str) -> str:
    prefix = 0
    while value >= 1000:
        value, prefix = value / 1000, prefix + 1
    return f"{float(f'{value:.3g}'):g} {['', 'k', 'M', 'G', 'T', 'P', 'E'][prefix]}{unit}"


def test_the_calculator_starts_with_its_defaults(show):
    page = show(regimes.calculator(), "calculator.js")
    spec = library.calculator_spec()
    for item in spec["inputs"]:
        assert page.input_value(f"input[name={item['name']}]") == str(item["default"])
    assert page.input_value("select[name=device]") == "nvidia-h200-sxm"
    options = page.locator("select[name=device] option")
    assert options.count() == len(spec["devices"])
    assert page.locator("table").is_visible()


@pytest.mark.parametrize("value", ["", "0", "-4", "1.5", "99999999999999", "32m"])
def test_sizes_that_make_no_sense(show, value):
    page = show(regimes.calculator(), "calculator.js")
    page.fill("input[name=t]", value)
    assert "t must be a whole number" in page.locator(".calculator-answer").inner_text()
    assert not page.locator("table").is_visible()
    assert page.get_attribute("input[name=t]", "aria-invalid") == "true"
    page.fill("input[name=t]", "128")
    assert page.locator("table").is_visible()
    assert page.get_attribute("input[name=t]", "aria-invalid") == "false"


def test_every_field_of_the_calculator_has_a_label(show):
    page = show(regimes.calculator(), "calculator.js")
    fields = page.locator("input, select")
    for index in range(fields.count()):
        assert fields.nth(index).evaluate("field => field.labels.length") == 1


# -- filter ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def index(site):
    return html_of(catalogue.index_page(site).content)


def rows_of(page):
    return page.locator("tbody tr:visible td:first-child").all_inner_texts()


def test_the_filter_offers_and_finds_what_the_knowledge_says(show, site, index):
    page = show(index, "filter.js")
    metas = [document.pattern for document in site.catalogue.patterns]
    assert len(rows_of(page)) == len(metas)
    facets = {
        "regime": lambda meta: meta.regimes,
        "arch": lambda meta: meta.archs,
        "impact": lambda meta: (meta.impact,),
        "basis": lambda meta: (meta.basis,),
        "kind": lambda meta: (meta.kind,),
        "language": lambda meta: (catalogue.language_title(meta.scope),),
    }
    for name, values in facets.items():
        offered = page.locator(f"select[name={name}] option").evaluate_all(
            "options => options.map((option) => option.value)"
        )
        assert offered[0] == ""
        assert set(offered[1:]) == {value for meta in metas for value in values(meta)}
        for value in offered[1:]:
            page.select_option(f"select[name={name}]", value)
            wanted = [catalogue.label(meta) for meta in metas if value in values(meta)]
            assert [text.split(":")[0] for text in rows_of(page)] == wanted
            assert page.locator("output").inner_text() == (
                f"{len(wanted)} of {len(metas)} patterns"
            )
        page.select_option(f"select[name={name}]", "")
    archs = page.locator("select[name=arch] option").all_inner_texts()[1:]
    assert archs == sorted(archs, key=lambda arch: int(arch.removeprefix("sm_")))


def test_a_choice_is_a_whole_value(show):
    rows = "| A | B |\n| --- | --- |\n| one | sm_10, x |\n| two | sm_100 |\n| three | y |\n"
    page = show(html_of(catalogue.filterable(rows, "things", ["B"])), "filter.js")
    page.select_option("select[name=b]", "sm_10")
    assert rows_of(page) == ["one"]
    assert page.locator("output").inner_text() == "1 of 3 things"


def test_words_and_choices_together_and_show_all(show, site, index):
    page = show(index, "filter.js")
    page.fill("input[name=words]", "SPILL")
    page.select_option("select[name=kind]", "optimization")
    found = rows_of(page)
    assert found
    assert all("spill" in text.lower() for text in found)
    assert page.locator("tbody tr:visible").count() < len(site.catalogue.patterns)
    page.fill("input[name=words]", "no such words")
    assert rows_of(page) == []
    page.get_by_role("button", name="Show all").click()
    page.wait_for_function("document.querySelector('output').textContent.startsWith("
                           f"'{len(site.catalogue.patterns)} of')")  # fmt: skip


def test_the_filter_by_keyboard(show, index):
    page = show(index, "filter.js")
    page.get_by_label("Words").focus()
    page.keyboard.type("tma")
    page.keyboard.press("Enter")
    few = len(rows_of(page))
    assert few > 0
    for _ in range(2):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "language"
    page.keyboard.type("CuTe")
    assert page.locator("select[name=language]").input_value() == "CuTe DSL"
    assert 0 < len(rows_of(page)) < few


def test_an_address_can_hold_the_choice(show, index):
    page = show(index, "filter.js", "?regime=prefill&words=causal&arch=none")
    assert page.input_value("input[name=words]") == "causal"
    assert page.input_value("select[name=regime]") == "prefill"
    assert page.input_value("select[name=arch]") == ""
    assert all(re.search("causal", text, re.I) for text in rows_of(page))


def test_metrics_filter(show, site):
    page = show(html_of(catalogue.metrics_page(site).content), "filter.js")
    page.select_option("select[name=origin]", "static")
    assert any(text.startswith("spill_instructions") for text in rows_of(page))
    assert page.get_by_role("search", name="Filter metrics").is_visible()


# -- on a phone ------------------------------------------------------------------------------------


@pytest.fixture
def phone(browser, tmp_path):
    """Opens HTML with the site's own style on a phone."""

    def open_(body: str):
        style = (ROOT / "docs/assets/css/site.css").read_text()
        (tmp_path / "page.html").write_text(
            f'<!doctype html><meta charset="utf-8"><style>{style}</style>'
            f'<body class="md-typeset">{body}</body>'
        )
        page = browser.new_page(viewport={"width": 390, "height": 800})
        page.goto((tmp_path / "page.html").as_uri())
        return page

    return open_


def test_both_sides_of_a_change_are_in_sight_on_a_phone(phone):
    before, after = (changes.Line("v", "a.py", 1, text) for text in ("old = 1", "new = 2"))
    same = changes.Line("v", "a.py", 2, "same = 3")
    rows = [changes.Row("changed", before, after), changes.Row("same", same, same)]
    table = "".join(diff._row(row) for row in rows)
    page = phone(f'<div class="diff"><table><tbody>{table}</tbody></table></div>')
    for text in ("old = 1", "new = 2"):
        box = page.get_by_text(text).bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 390
    assert page.locator("code:visible", has_text="same = 3").count() == 1


def test_a_ladder_shows_times_before_ideas_on_a_phone(phone):
    cells = "".join(f"<td>{text}</td>" for text in ("v1", "An idea " * 9, *["9 us"] * 6))
    head = "".join("<th>x</th>" for _ in range(8))
    page = phone(
        '<div class="ladder ladder--ideas"><div class="md-typeset__table"><table><thead><tr>'
        f"{head}</tr></thead><tbody><tr>{cells}</tr></tbody></table></div></div>"
    )
    assert not page.get_by_text("An idea").is_visible()
    box = page.locator("td:visible").nth(1).bounding_box()
    assert box["x"] + box["width"] <= 390
