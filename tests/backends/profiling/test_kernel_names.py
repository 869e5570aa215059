"""Short names are a function's last name, never share a name in a trace, and fit a table's column.

The real names in real_names.txt.gz, 1,013 of them, are from the traces that HolisticTraceAnalysis
(MIT, Meta), Kineto (BSD-3-Clause, Meta) and TraceLens (MIT, AMD) publish for their own tests;
comments in it say which from where.
"""

import gzip
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.profiling.kernel_names import LENGTH, short_names

WRITTEN = gzip.decompress((Path(__file__).parent / "real_names.txt.gz").read_bytes()).decode()
REAL = [line for line in WRITTEN.splitlines() if not line.startswith("#")]
BRACKETS = re.compile(r"<[^<>]*>")
NUMBER = re.compile(r" #\d+$")

ARRAY = "at::detail::Array<char*, 3>"
VECTORIZED = f"void at::native::vectorized_elementwise_kernel<4, FUNCTOR, {ARRAY} >(int, FUNCTOR)"
ADD = VECTORIZED.replace("FUNCTOR", "at::native::CUDAFunctor_add<float>")
FILL = VECTORIZED.replace("FUNCTOR", "at::native::FillFunctor<float>")
FILL_LONG = VECTORIZED.replace("FUNCTOR", "at::native::FillFunctor<long>")
EXP_LAMBDA = "at::native::exp_kernel_cuda(at::Iterator&)::{lambda()#1}::operator()() const"
EXP = VECTORIZED.replace("FUNCTOR", EXP_LAMBDA)
CUTLASS = "cutlass_80_simt_sgemm_128x32"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
TRITON = "triton_red_fused_add_addmm_mul_native_layer_norm_split_unsqueeze_view_22"


@pytest.mark.parametrize(
    ("full", "short"),
    [
        (ADD, "vectorized_elementwise_kernel"),
        (f"{NCCL}(ncclDevKernelArgsStorage<4096ul>)", NCCL),
        (f"void cutlass::Kernel2<{CUTLASS}>({CUTLASS}::Params)", f"Kernel2<{CUTLASS}>"),
        ("void (anonymous namespace)::softmax<float, 10, true>(float*, int)", "softmax"),
        ("void <unnamed>::softmax<float>(float*)", "softmax"),
        ("void `anonymous namespace'::softmax<float>(float*)", "softmax"),
        ("std::enable_if<!(false), void>::type internal::gemvx::scale<int, float>(int)", "scale"),
        (
            "std::enable_if<(((8)>(0)))&&a::A<b::B>::exists, void>::type norm<b::B, 8>(b::B*)",
            "norm",
        ),
        ("a::Pointer::operator->()", "Pointer"),
        ("foo(int)::{lambda(char, a::B<int>)#2}::operator()(char) const", "foo"),
        ("fill(int)::$_0::operator()(int) const", "fill"),
        ("void at::native::fill<4, float>(int) [clone .kd]", "fill"),
        ("attn_fwd.kd", "attn_fwd"),
        ("_ZN5aiter12quant_kernelIDF16bLi256ELb1EEEvPT_i", "quant_kernel"),
        ("_ZTSN2at6native3xpu10CopyKernelIfEE", "CopyKernel"),
        (TRITON, "triton_red_fused_ad…it_unsqueeze_view_22"),
    ],
)
def test_a_short_name_is_a_function_s_last_name(full: str, short: str) -> None:
    assert short_names([full]) == {full: short}


@pytest.mark.parametrize(
    "name",
    [
        "triton_poi_fused_add_0",
        "ampere_sgemm_128x64_nn",
        "Memcpy HtoD (Pageable -> Device)",
        "Memset (Device)",
        "copy from Device -> Host",
        "volta_h16gemm_<BF16,BF16,float>_nt_v1",
        "aten::cat.out-dtype_Float-extraKey_1",
        "cut_off<at::native::Functor<float",
        "_Znot_mangled",
        "",
    ],
)
def test_what_is_no_function_s_name_stays_as_it_is(name: str) -> None:
    assert short_names([name]) == {name: name}


def test_names_that_coincide_get_a_telling_word_and_then_numbers() -> None:
    assert short_names([ADD, FILL, FILL_LONG, EXP]) == {
        ADD: "vectorized_elementw…nel<CUDAFunctor_add>",
        FILL: "vectorized_elementw…_kernel<FillFunctor>",
        FILL_LONG: "vectorized_elementwise_kernel<long>",
        EXP: "vectorized_elementw…nel<exp_kernel_cuda>",
    }
    assert short_names(["void cub::Scan<4>()", "void thrust::cub::Scan<8>()"]) == {
        "void cub::Scan<4>()": "Scan",
        "void thrust::cub::Scan<8>()": "Scan #2",
    }


def test_real_names_are_short_and_none_is_shared() -> None:
    names = short_names(REAL)
    assert set(names) == set(REAL)
    different_names = set(names.values())
    assert len(different_names) == len(names)


def test_real_names_hold_their_function_s_name() -> None:
    assert LENGTH == 40
    for full, short in short_names(REAL).items():
        without_number = NUMBER.sub("", short)
        assert 0 < len(without_number) <= LENGTH
        has_arguments = "<" in full
        assert not ("::" in short and has_arguments)
        # The function's name is one of the full name's words; what was mangled has none.
        function = re.split("[<…]", without_number)[0]
        is_mangled = full.startswith("_Z")
        assert is_mangled or function in BRACKETS.sub("", full)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(REAL), max_size=60))
def test_short_names_depend_on_the_set_alone(chosen: list[str]) -> None:
    names = short_names(chosen)
    assert names == short_names(reversed(chosen))
    assert set(names) == set(chosen)
    different_names = set(names.values())
    assert len(different_names) == len(names)


@given(st.text("<>(){}[]:,-*&#' abKernel0_…", max_size=60))
def test_any_text_has_a_name(text: str) -> None:
    names = short_names([text, "Kernel"])
    different_names = set(names.values())
    assert len(different_names) == len(names)


def test_a_deeply_nested_name_is_read() -> None:
    nested = "float"
    for _ in range(12):
        nested = f"F<{nested}, {nested}>::type"
    full = f"void elementwise<{nested}>(int)"
    assert short_names([full]) == {full: "elementwise"}
