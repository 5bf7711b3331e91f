# ruff: noqa: E501  # A PTX statement stays on its line.
"""``printf`` as C's own writes it, and what a kernel calls."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest

from mla_var3.emulator import launch
from mla_var3.emulator.calls import _format
from mla_var3.errors import EmulatorError

LIBC = ctypes.CDLL(None)
HELLO = ctypes.create_string_buffer(b"hello")
INT, LONG, DOUBLE = ctypes.c_int, ctypes.c_longlong, ctypes.c_double
#: Format, arguments as C takes them.
FORMATS = [
    ("plain 100%%\n", []), ("%d and %d", [INT(-5), INT(7)]), ("[%5d|%-5d|%05d|%+d]", [INT(42)] * 4),
    ("%u %x %X %o", [INT(-1), INT(255), INT(255), INT(8)]), ("%lld %d", [LONG(-(1 << 40)), INT(3)]),
    ("%d %lld %d", [INT(1), LONG(1 << 40), INT(2)]), ("%llu %lx", [LONG(-1), LONG(1 << 35)]),
    ("%f %e %g", [DOUBLE(1.5), DOUBLE(-2e-9), DOUBLE(3.25)]), ("%d %.2f", [INT(9), DOUBLE(2.345)]),
    ("%8.3f|%-8.1f|%F %E %G", [DOUBLE(x) for x in (3.14159, 2.5, 1e3, 1e3, 1e9)]),
    ("%c%c", [INT(65), INT(98)]), ("%s!", [ctypes.c_void_p(ctypes.addressof(HELLO))]),
    ("%d %s %d", [INT(1), ctypes.c_void_p(ctypes.addressof(HELLO)), INT(2)]),
    ("%hhd %jd %d", [INT(-3), LONG(-(1 << 50)), INT(5)]), ("%ld|%d|%li", [LONG(7), INT(8), LONG(-9)]),
    ("%lX %zx %d", [LONG(1 << 40), LONG(255), INT(-1)]), ("%d%%%d", [INT(1), INT(2)]),
    ("%i %f %i", [INT(1), DOUBLE(2), INT(3)]), ("%x|%#x|%08x", [INT(48879)] * 3), ("%c%f%c", [INT(65), DOUBLE(0.5), INT(66)]),
    ("[%10s|%-10s]", [ctypes.c_void_p(ctypes.addressof(HELLO))] * 2), ("%.3d|%+i", [INT(7), INT(7)]),
    ("%p", [ctypes.c_void_p(0xBEEF)]), ("%zu %td", [LONG(12), LONG(-12)]), ("%i %hd", [INT(-3), INT(4)]),
]  # fmt: skip


def frame(arguments: list) -> bytes:
    """Arguments as a kernel packs them: each at a multiple of its size."""
    out = b""
    for one in arguments:
        width = ctypes.sizeof(one)
        out += b"\xa5" * (-len(out) % width)
        value = one.value or 0
        out += (
            struct.pack("<d", value)
            if isinstance(one, DOUBLE)
            else (value % (1 << 8 * width)).to_bytes(width, "little")
        )
    return out


@pytest.mark.parametrize(
    ("text", "arguments"), FORMATS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_text_is_that_of_c(text: str, arguments: list) -> None:
    buffer = ctypes.create_string_buffer(300)
    LIBC.snprintf(buffer, ctypes.c_size_t(300), text.encode(), *arguments)
    assert _format(text, frame(arguments) + b"\xa5" * 8) == buffer.value.decode()


KERNEL = """
.version 8.8\n.target sm_90a\n.address_size 64
.extern .func (.param .b32 func_retval0) vprintf(.param .b64 a, .param .b64 b);
.extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
.global .align 1 .b8 text[12] = {{108, 97, 110, 101, 32, 37, 100, 32, 37, 103, 10, 0}};
.visible .entry k(.param .u64 o)
{{
.reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .f64 %f<3>; .local .align 8 .b8 before[24]; .local .align 8 .b8 frame[16];
mov.u32 %r0, %tid.x; ld.param.u64 %d5, [o]; mad.wide.u32 %d5, %r0, 4, %d5; mov.u32 %r2, 77;
{body}
st.global.u32 [%d5], %r2; ret;
}}
"""
PRINT = """
mov.u64 %d0, frame; cvt.rn.f64.u32 %f0, %r0; mul.f64 %f0, %f0, 0d3FE0000000000000;
st.local.u32 [%d0], %r0; st.local.f64 [%d0+8], %f0; cvta.local.u64 %d1, %d0;
setp.gt.u32 %p0, %r0, 2; @%p0 bra OVER;
mov.u64 %d2, text; cvta.global.u64 %d3, %d2;
{ .param .b64 param0; st.param.b64 [param0], %d3; .param .b64 param1; st.param.b64 [param1], %d1; .param .b32 retval0;
call.uni (retval0), vprintf, (param0, param1);
ld.param.b32 %r2, [retval0]; }
OVER:
"""


def test_a_text_that_is_nowhere_is_empty() -> None:
    """C says nothing of it; a kernel that prints it is not a reason to end the process."""
    assert _format("<%s|%d>", frame([LONG(0), INT(3)])) == "<|3>"


def test_lanes_print_one_after_the_other() -> None:
    out = np.zeros(32, np.uint32)
    done = launch(KERNEL.format(body=PRINT), [out], 1, 32)
    assert not done.diagnostics
    assert done.printed == ["lane 0 0\n", "lane 1 0.5\n", "lane 2 1\n"]
    assert out.tolist() == [0] * 3 + [77] * 29


def test_an_assertion_that_fails_ends_the_launch_with_its_text() -> None:
    body = """
mov.u64 %d2, text; cvta.global.u64 %d3, %d2; mov.u32 %r3, 12;
{ .param .b64 param0; st.param.b64 [param0], %d3; .param .b64 param1; st.param.b64 [param1], %d3; .param .b32 param2; st.param.b32 [param2], %r3;
.param .b64 param3; st.param.b64 [param3], %d3; .param .b64 param4; st.param.b64 [param4], %d3;
call.uni __assertfail, (param0, param1, param2, param3, param4); }
"""
    with pytest.raises(EmulatorError) as caught:
        launch(KERNEL.format(body=body), [np.zeros(32, np.uint32)], 1, 32)
    assert "an assertion of the kernel fails: lane %d %g" in str(caught.value)
    assert ":12)" in str(caught.value)


def test_a_lane_alone_prints_what_is_its_own() -> None:
    """Two integers side by side, of which one is negative."""
    body = PRINT.replace("st.local.u32 [%d0], %r0; st.local.f64 [%d0+8], %f0;",
                         "add.u32 %r3, %r0, 100; sub.u32 %r4, %r0, 7; st.local.u32 [%d0], %r3; st.local.u32 [%d0+4], %r4;")  # fmt: skip
    body = body.replace("setp.gt.u32 %p0, %r0, 2;", "setp.ne.u32 %p0, %r0, 5;")
    out = np.zeros(32, np.uint32)
    done = launch(KERNEL.format(body=body).replace("37, 103", "37, 100"), [out], 1, 32)
    assert not done.diagnostics
    assert done.printed == ["lane 105 -2\n"]
    assert out.tolist() == [0 if t == 5 else 77 for t in range(32)]


def test_the_call_of_what_is_not_known_is_named() -> None:
    body = "{ .param .b64 param0; st.param.b64 [param0], %d5; call.uni mystery, (param0); }"
    for call in (body, body.replace(", (param0)", "")):
        with pytest.raises(EmulatorError, match="the call of mystery is not emulated"):
            launch(KERNEL.format(body=call), [np.zeros(32, np.uint32)], 1, 32)


def test_an_assertion_of_no_file_says_no_place() -> None:
    body = """
mov.u64 %d2, text; cvta.global.u64 %d3, %d2; mov.u64 %d4, 0; mov.u32 %r3, 12;
{ .param .b64 param0; st.param.b64 [param0], %d3; .param .b64 param1; st.param.b64 [param1], %d4; .param .b32 param2; st.param.b32 [param2], %r3;
.param .b64 param3; st.param.b64 [param3], %d3; .param .b64 param4; st.param.b64 [param4], %d3;
call.uni __assertfail, (param0, param1, param2, param3, param4); }
"""
    with pytest.raises(EmulatorError) as caught:
        launch(KERNEL.format(body=body), [np.zeros(32, np.uint32)], 1, 32)
    assert "lane %d %g\n, thread 0" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("assert x > 0", "an assertion of the kernel fails: assert x > 0, thread 0"),
        ("stop(x)", "the kernel stops itself (trap), thread 0"),
        (None, "the kernel stops itself (trap), thread 0"),
    ],
)
def test_a_trap_says_the_assertion_at_its_line(tmp_path, line: str | None, said: str) -> None:
    source = tmp_path / "source.py"
    source.write_text(f"pass\n  {line}\nassert False\n")
    place = "" if line is None else ".loc 1 2 0\n"
    text = KERNEL.format(body=f"{place}trap;") + f'\n.file 1 "{source}"\n'
    with pytest.raises(EmulatorError) as caught:
        launch(text, [np.zeros(32, np.uint32)], 1, 32)
    assert said in str(caught.value)


@pytest.mark.parametrize("threads", [1, 2, 32])
@pytest.mark.parametrize("first", [0, 5, 31])
def test_an_assertion_may_fail_for_some_threads_alone(threads: int, first: int) -> None:
    """Its line is an argument of the first that fails."""
    if first + threads > 32:
        return
    body = f"""
mov.u64 %d2, text; cvta.global.u64 %d3, %d2; add.u32 %r3, %r0, 100; sub.u32 %r4, %r0, {first};
setp.ge.u32 %p0, %r4, {threads}; @%p0 bra FINE;
{{ .param .b64 param0; st.param.b64 [param0], %d3; .param .b64 param1; st.param.b64 [param1], %d3; .param .b32 param2; st.param.b32 [param2], %r3;
.param .b64 param3; st.param.b64 [param3], %d3; .param .b64 param4; st.param.b64 [param4], %d3;
call.uni __assertfail, (param0, param1, param2, param3, param4); }}
FINE:
"""
    with pytest.raises(EmulatorError) as caught:
        launch(KERNEL.format(body=body), [np.zeros(32, np.uint32)], 1, 32)
    said = f":{100 + first}), thread {first} (warp 0, lane {first}) of CTA (0, 0, 0)"
    assert said + (f" and {threads - 1} more," if threads > 1 else ",") in str(caught.value)
