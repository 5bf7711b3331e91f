"""Addresses, navigation and the two places that pages go."""

from __future__ import annotations

import html
import subprocess
import sys
from dataclasses import replace

import pytest

from generators import families as engine
from generators.__main__ import main
from generators.build.navigation import summary
from generators.model.site import relative
from generators.write import text
from generators.write.page import Page, unique, write_folder
from mla_var3.errors import KnowledgeError
from mla_var3.knowledge.pages import natural
from tests.generators.checking import ROOT, html_of
from tests.generators.planted import small_site


@pytest.mark.parametrize(
    ("page", "target", "wanted"),
    [
        ("index.md", "kernels/index.md", "kernels/index.md"),
        ("kernels/flash_mla/v1.md", "records/a.json", "../../records/a.json"),
        ("kernels/flash_mla/v1.md", "kernels/flash_mla/v2.md#devlog", "v2.md#devlog"),
        ("a/b.md", "a/b.md#x", "b.md#x"),
    ],
)
def test_addresses_are_relative(page, target, wanted):
    assert relative(page, target) == wanted


def test_sources_devlogs_records_and_devices_have_their_pages(site):
    link = site.link("index.md")
    folder = "kernels/cutile/mla/flash_mla"
    assert (
        link(f"{folder}/flash_mla_v1/flash_mla_v1.py") == "kernels/mla/cutile-dsl/flash_mla/v1.md"
    )
    assert link(f"{folder}/devlog.md") == "kernels/mla/cutile-dsl/flash_mla/index.md"
    assert link("knowledge/devices/nvidia-h200-sxm.toml") == "devices/nvidia-h200-sxm.md"
    assert link("kernels/") == "kernels/index.md"
    assert link("knowledge/workloads/mla.md?heads=8#x") == "mla/index.md?heads=8#x"
    run = site.runs[0]
    below = run.name.removeprefix("results/")
    assert link(f"{run.name}#json") == f"records/{below}.json"
    assert link(run.name).startswith(f"records/{below.rsplit('/', 2)[0]}.md#")


def test_records_stand_in_the_order_of_their_numbers(site):
    names = ["r/f/v10/s1.json", "r/f/v9/s16-t4.json", "r/f/v9/s2-t4.json", "r/f/v9/s16.json"]
    assert sorted(names, key=natural) == [names[2], names[1], names[3], names[0]]
    counts: dict[str, list[int]] = {}
    for run in site.runs:
        if run.is_timed and run.record.mode == "event" and run.record.problem.get("b") == 32:
            kernel, rest = run.record.kernel, {**run.record.problem, "s": None}
            if kernel.layer != "mla":
                continue
            key = f"{run.record.target} {kernel.language} {kernel.design} {kernel.version} {rest}"
            counts.setdefault(key, []).append(int(run.record.problem["s"]))
    assert any(len(found) > 2 for found in counts.values())
    assert all(found == sorted(found) for found in counts.values())


def test_an_entry_of_a_devlog_is_found_on_its_version_s_page(site):
    devlog = site.catalogue.devlogs["mla_var6_plus"]
    heading = next(s.title for s in devlog.sections if s.title.startswith("v2:"))
    address = site.link("index.md")(f"{devlog.name}#{engine.knowledge.markdown.slug(heading)}")
    assert address == "kernels/mla/cutile-dsl/mla_var6_plus/v2.md#devlog"


def test_a_file_without_a_page_is_published_as_it_is(site):
    site = replace(site, copied=set())
    assert site.link("a/b.md")("pyproject.toml#x") == "../files/pyproject.toml.txt"
    assert site.copied == {"pyproject.toml"}


@pytest.mark.parametrize("target", ["no/such.py", "../secret", ".gitignore", ".git/config", "src"])
def test_what_is_no_file_of_the_checkout_is_refused(site, target):
    with pytest.raises(KnowledgeError, match="not a file of the checkout"):
        site.link("index.md")(target)


@pytest.mark.parametrize(
    "name", ["docs/leak.md", "knowledge/leak.md", "results/leak.json", "README.md", "docs"]
)
def test_a_link_that_leads_out_of_the_checkout_is_refused(tree, tmp_path_factory, name):
    secret = tmp_path_factory.mktemp("elsewhere") / "secret.md"
    secret.write_text("# Secret\n")
    (tree.root / name).parent.mkdir(exist_ok=True)
    if (tree.root / name).exists():
        (tree.root / name).rename(tree.root / "moved")
    (tree.root / name).symlink_to(secret.parent if name == "docs" else secret)
    with pytest.raises(KnowledgeError, match=f"{name} is a link that leads out of the checkout"):
        engine.load(tree.root)


def test_a_linked_file_outside_the_checkout_is_not_copied(tree, tmp_path_factory):
    secret = tmp_path_factory.mktemp("elsewhere") / "secret.txt"
    secret.write_text("secret")
    (tree.root / "scripts").mkdir()
    (tree.root / "scripts" / "leak.txt").symlink_to(secret)
    with pytest.raises(KnowledgeError, match="not a file of the checkout"):
        small_site(tree).link("index.md")("scripts/leak.txt")


def test_a_link_inside_the_checkout_is_fine(tree):
    (tree.root / "docs" / "again.md").symlink_to(tree.root / "CONTRIBUTING.md")
    engine.refuse_links_out(tree.root)


def test_two_pages_of_one_path_are_refused():
    with pytest.raises(KnowledgeError, match=r"two pages claim a\.md"):
        unique([Page("a.md", "x"), Page("a.md", "y")])


@pytest.mark.parametrize("path", ["../a.md", "/a.md", "a/../../b.md"])
def test_a_page_cannot_leave_the_site(path):
    with pytest.raises(KnowledgeError, match="leaves the site"):
        Page(path, "")


def test_a_page_without_a_place_in_the_navigation_is_refused(site, monkeypatch):
    class Lost:
        def pages(self, site):
            return [Page("lost.md", "# Lost")]

    monkeypatch.setattr(engine, "FAMILIES", (Lost(),))
    with pytest.raises(KnowledgeError, match=r"lost\.md has no place in the navigation"):
        engine.all_pages(site)


def test_navigation_nests_by_title_in_the_order_of_pages():
    pages = [
        Page("index.md", "", nav=("Home",)),
        Page("k/index.md", "", nav=("Kernels",)),
        Page("k/a_b/v1.md", "", nav=("Kernels", "a_b", "v1")),
        Page("k/a_b/index.md", "", nav=("Kernels", "a_b")),
        Page("records/x.json", b""),
        Page("r/v1.md", "", nav=("Results", "a_b", "v1")),
        Page("[odd].md", "", nav=("[odd]*<script>",)),
    ]
    assert summary(pages) == (
        "* [Home](index.md)\n"
        "* [Kernels](k/index.md)\n"
        "    * [a\\_b](k/a_b/index.md)\n"
        "        * [v1](k/a_b/v1.md)\n"
        "* Results\n"
        "    * a_b\n"
        "        * [v1](r/v1.md)\n"
        "* [\\[odd\\]\\*(script)]([odd].md)\n"
    )


def test_every_page_can_be_written_to_a_folder(pages, tmp_path):
    assert write_folder(pages, tmp_path) == len(pages)
    for page in pages:
        assert (tmp_path / page.path).read_bytes() == page.data


@pytest.mark.exhaustive
def test_the_command_line_writes_what_mkdocs_gets(tmp_path, capsys):
    assert main([str(tmp_path / "out")]) == 0
    assert "files to" in capsys.readouterr().out
    assert (tmp_path / "out/index.md").is_file()
    assert (tmp_path / "out/kernels/mla/cutile-dsl/flash_mla/v1.md").is_file()


def test_bad_knowledge_ends_the_command_line_with_one_sentence(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "generators", str(tmp_path / "out")],
        cwd=ROOT, env={"HYPERMLA_ROOT": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert "has no folder knowledge/" in done.stderr
    assert "Traceback" not in done.stderr


# -- pieces of Markdown ----------------------------------------------------------------------------


@pytest.mark.parametrize("inner", ["a", "```", "````\n```", "a `b` c", "<script>x</script>"])
def test_a_fence_holds_any_text(inner):
    shown = html_of(text.fence(inner, "python", title='a"b_c'))
    assert "<script" not in shown
    assert shown.count("<pre") == 1
    assert "a&#x27;b_c" in shown


def test_front_matter_takes_any_line():
    import frontmatter

    odd = 'a: "b" \\ #c\n- d'
    found = frontmatter.loads(text.meta(title=odd, hide=["navigation"]) + "\n\nText")
    assert found.metadata == {"title": html.escape(odd), "hide": ["navigation"]}


@pytest.mark.parametrize("value", ["a|b", "<b>", "`", "sm_90", "x=1 y=2"])
def test_code_in_a_table_stays_in_its_cell(value):
    shown = html_of(text.table(["A", "B"], [[text.code(value), "b"]]))
    assert shown.count("<td>") == 2
    assert "<b>" not in shown


def test_links_of_a_hand_written_file_are_turned():
    found = text.rebase(
        "[a](../x.md#y) `[b](c.md)` [c](https://x.y) [d](#z)",
        "docs/contributing/k.md",
        lambda target: f"TO:{target}",
    )
    assert found == "[a](TO:docs/x.md#y) `[b](c.md)` [c](https://x.y) [d](#z)"
