import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mla_var3 import loader
from mla_var3.errors import PlanError
from mla_var3.languages.cute import signature
from mla_var3.languages.cute.signature import Dynamic


def host(x, factor, flag, stream):
    """Stands for a @cute.jit function."""


def test_a_plain_tensor_is_compiled_for_its_shape():
    (x, factor, flag) = signature.specs(host, (torch.empty(3, 4), 2.0, True))
    assert (x.shape, x.strides, x.dtype) == ((3, 4), (4, 1), "float32")
    assert (factor.kind, factor.dtype) == ("scalar", "Float32")
    assert (flag.kind, flag.text) == ("constant", "True")


def test_strides_outside_a_dynamic_axis_are_dynamic_too():
    x, *_ = signature.specs(host, (Dynamic(torch.empty(2, 128, 576), (0, 1), 2), 1, None))
    assert x.shape == (None, None, 576)
    assert x.strides == (None, 576, 1)
    assert x.stride_multiples == (2 * 576, 576, 1)


def test_sequences_of_a_cache_may_lie_apart_and_those_of_queries_not():
    wide = torch.empty(2, 5, 4, 8)[:, :3]
    assert not wide.is_contiguous()
    whole = wide.contiguous()
    assert signature.by_rows({"q": whole, "key": wide})[1].tensor is wide
    for names, others in (("q", ()), ("kpe", ()), ("key", ("value",)), ("q", ("key",))):
        with pytest.raises(PlanError, match=f"^{names} has strides .*pass a contiguous tensor"):
            signature.by_rows({names: wide}, *([others] if others else []))
    latent = {"q": whole, "z": wide, "kpe": wide}
    assert [x.tensor for x in signature.by_rows(latent)] == [*latent.values()]
    with pytest.raises(PlanError, match="z has strides"):  # Rows, and not sequences, lie apart.
        signature.by_rows({"z": torch.empty(2, 3, 16)[..., :8]})


def test_an_axis_of_one_element_has_the_stride_of_its_place():
    turned = torch.empty(2, 1, 8, 16).transpose(1, 2).contiguous()
    assert turned.stride(2) == 8 * 16  # What torch leaves, as that axis takes no step.
    x, *_ = signature.specs(host, (Dynamic(turned, (0, 1, 2)), 1, None))
    assert x.strides == (None, None, 16, 1)
    about = signature.described([x])[0]
    assert loader.misfit(about, turned) is None
    assert loader.misfit(about, torch.empty(2, 8, 9, 16)) is None


def test_an_axis_of_one_element_at_the_end_does_not_pass_for_the_contiguous_one():
    batch_last = torch.empty(1, 8, 16).permute(1, 2, 0)
    assert batch_last.is_contiguous()
    x, *_ = signature.specs(host, (batch_last, 1, None))
    assert x.strides == (16, 1, 128)
    plain, *_ = signature.specs(host, (torch.empty(8, 16, 1), 1, None))
    assert plain.strides == (16, 1, 1)


def test_a_slice_promises_no_more_than_it_keeps():
    whole = torch.empty(8, 100)
    x, *_ = signature.specs(host, (Dynamic(whole[:, :64], (0, 1), 64 // 8), 1, None))
    assert x.strides == (None, 1)
    assert x.stride_multiples[0] in (1, 4, 8)
    assert 100 % x.stride_multiples[0] == 0


@given(
    extents=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    order=st.randoms(use_true_random=False),
    data=st.data(),
)
def test_a_tensor_fits_what_it_was_compiled_for(extents, order, data):
    axes = list(range(len(extents)))
    order.shuffle(axes)
    tensor = torch.empty(extents).permute(axes)
    dynamic = tuple(data.draw(st.sets(st.sampled_from(axes))))
    (spec, *_) = signature.specs(host, (Dynamic(tensor, dynamic), 1, None))
    about = signature.described([spec])[0]
    assert loader.misfit(about, tensor) is None
    packed = loader.pack({**about, "shape_bits": 32, "stride_bits": 64}, tensor)
    assert packed.data == (tensor.data_ptr() or None)
    assert len(getattr(packed, "shape", ())) == len(dynamic) == spec.shape.count(None)
    assert len(getattr(packed, "strides", ())) == spec.strides.count(None)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((torch.empty(2), 1), r"host takes 3 arguments .* \(x, factor, flag\), and 2 are given"),
        (
            (torch.empty(2, dtype=torch.complex64), 1, 1),
            "x is complex64, which",
        ),
        ((torch.empty(()), 1, 1), "x has no axis; pass a number"),
        ((Dynamic(torch.empty(10), (0,), 4), 1, 1), "x has 10 elements along axis 0, .* of 4"),
    ],
)
def test_arguments_that_do_not_fit_are_named(arguments, sentence):
    with pytest.raises(PlanError, match=sentence):
        signature.specs(host, arguments)


def test_the_stream_comes_last():
    with pytest.raises(PlanError, match="must take the stream as its last parameter"):
        signature.specs(lambda x: None, (torch.empty(2),))


def test_a_launch_passes_neither_constants_nor_wrappers():
    x = torch.empty(4)
    assert signature.runtime_values((Dynamic(x, (0,)), 2, 1.5, True, "mode")) == (x, 2, 1.5)
