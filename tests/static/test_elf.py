import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.errors import ToolchainError
from mla_var3.static.elf import code_digest


def cubin(sections: dict[str, bytes]) -> bytes:
    """A 64-bit ELF file with these sections, as small as they come."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in sections) + b".shstrtab\0"
    body, headers, at = b"", [bytes(64)], 1
    for name, content in {**sections, ".shstrtab": names}.items():
        kind = 3 if name == ".shstrtab" else 1
        headers.append(
            struct.pack("<IIQQQQIIQQ", at, kind, 0, 0, 64 + len(body), len(content), 0, 0, 1, 0)
        )
        body, at = body + content, at + len(name) + 1
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    start = 64 + len(body)
    head = struct.pack(
        "<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, start, 0, 64, 0, 0, 64, len(headers), len(headers) - 1
    )
    return ident + head + body + b"".join(headers)


CODE = {".text.kernel_v1": b"code", ".nv.constant0.kernel_v1": b"zeros", ".debug_line": b"lines"}


def test_names_and_line_tables_are_no_code():
    named = {".text.kernel": b"code", ".nv.constant0.kernel": b"zeros", ".debug_line": b"others"}
    assert code_digest(cubin(CODE)) == code_digest(cubin(named))


@given(st.sampled_from([".text.kernel_v1", ".nv.constant0.kernel_v1"]), st.binary(max_size=8))
def test_every_byte_of_code_and_constants_counts(section, content):
    same = content == CODE[section]
    assert (code_digest(cubin(CODE | {section: content})) == code_digest(cubin(CODE))) == same


def test_a_constant_of_another_bank_is_another():
    other = {".text.k": b"code", ".nv.constant2.k": b"zeros"}
    assert code_digest(cubin(other)) != code_digest(cubin(CODE))


def test_what_holds_no_code_is_refused():
    with pytest.raises(ToolchainError, match="no machine code"):
        code_digest(cubin({".debug_line": b"lines"}))
    with pytest.raises(ToolchainError, match="not an ELF file"):
        code_digest(b"PTX")
