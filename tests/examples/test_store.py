import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.errors import KnowledgeError
from mla_var3.examples import store
from mla_var3.examples.model import Annotation, Compiled, Example, Found

TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)


def example(**values):
    base = {
        "title": "A scale", "repository": "https://example.org/cutlass", "path": "a/b.py",
        "commit": "a" * 40, "topics": ("epilogue",),
    }  # fmt: skip
    return Example(**(base | values))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("cute/hopper/kernel/dense_gemm/dense_gemm.py", "hopper-dense-gemm"),
        ("cute/hopper/kernel/dense_gemm/dense_gemm_persistent.py", "hopper-dense-gemm-persistent"),
        ("cute/blackwell/kernel/attention/mla/mla_decode_fp16.py",
         "blackwell-attention-mla-decode-fp16"),
        ("cute_ext/blackwell/dense_gemm.py", "cute-ext-blackwell-dense-gemm"),
        ("dsl_tutorials/inline_ptx.py", "inline-ptx"),
        ("experimental/primitives/tutorial/01_hello_world.py", "primitives-01-hello-world"),
    ],
)  # fmt: skip
def test_ids(path, name):
    assert store.id_of(path) == name


@given(
    title=TEXT, goal=st.text(max_size=30),
    notes=st.lists(st.tuples(st.integers(1, 99), TEXT), max_size=3),
    seen=TEXT, lines=st.lists(st.integers(1, 99), max_size=4),
    reason=st.none() | TEXT,
)  # fmt: skip
def test_what_is_written_is_read_again(title, goal, notes, seen, lines, reason):
    one = example(
        title=title,
        goal=goal,
        annotations=tuple(Annotation(line=line, text=text) for line, text in notes),
        checklist=(Found(pattern="epilogue", seen=seen, lines=tuple(lines)),),
        compiled=Compiled(toolchain="dsl 1", reason=reason),
    )
    content = one.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    assert Example.model_validate(tomllib.loads(store.to_toml(content))) == one


def test_files_change_only_when_their_content_does(tmp_path):
    assert store.write(tmp_path, "a-scale", example())
    assert not store.write(tmp_path, "a-scale", example())
    assert store.write(tmp_path, "a-scale", example(goal="other"))
    assert store.read(tmp_path) == {"a-scale": example(goal="other")}


@pytest.mark.parametrize("text", ["title = ", 'title = "x"', "\xff"])
def test_an_unsound_file_is_named(tmp_path, text):
    file = tmp_path / store.FOLDER / "bad.toml"
    file.parent.mkdir(parents=True)
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(KnowledgeError, match=r"knowledge/examples/bad.toml"):
        store.read(tmp_path)


def test_links_lead_to_the_pinned_line():
    address = example().address(12)
    assert address == f"https://example.org/cutlass/blob/{'a' * 40}/a/b.py#L12"
