"""Short names say what a kernel is, never share a name, and hold no cut-off part of one.

The real names in real_names.txt.gz, 1,013 of them, are from the traces that HolisticTraceAnalysis (MIT, Meta), Kineto
(BSD-3-Clause, Meta) and TraceLens (MIT, AMD) publish for their own tests; comments in it say which from where.
"""

import gzip
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.profiling.kernel_names import short_names

WRITTEN = gzip.decompress((Path(__file__).parent / "real_names.txt.gz").read_bytes()).decode()
REAL = [line for line in WRITTEN.splitlines() if not line.startswith("#")]
ELEMENTWISE = "at::native::vectorized_elementwise_kernel"
ADD = f"void {ELEMENTWISE}<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int, float)"
GARBLED = re.compile(r"\(?(?:int|float|char|unsigned|bool)\b|Params\b|[Aa]rray\b|\{lambda")
BRACKETS = {")": "(", ">": "<", "}": "{", "]": "["}


def short(full: str) -> str:
    return short_names([full])[full]


def open_brackets(name: str) -> str:
    left: list[str] = []
    for character in name.replace("->", "").replace("(8)>(0)", ""):
        if character in BRACKETS.values():
            left.append(character)
        elif character in BRACKETS and (not left or left.pop() != BRACKETS[character]):
            return f"{character} closes nothing"
    return "".join(left)


PARTS = "at::TensorIteratorBase&, float"
MULTIPLY = "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >"
LOADED = f"at::native::gpu_kernel_impl_nocast<{MULTIPLY} >({PARTS})::{{lambda(int)#1}}"
POWER = f"at::native::(anonymous namespace)::pow_tensor_scalar_kernel_impl<float, float>({PARTS})::{{lambda(float)#1}}"
SUM = "at::native::sum_functor<float, float, float>::operator()(at::TensorIterator&)::{lambda(float, float)#1}"
REDUCE = f"at::native::ReduceOp<float, at::native::func_wrapper_t<float, {SUM}>, unsigned int, float, 4>"
TAG = "__nv_dl_tag<void (*)(at::TensorIteratorBase&), &at::native::compare_scalar_kernel<c10::BFloat16>, 1u>"
CUTLASS = "cutlass_80_tensorop_s1688gemm_128x64_16x6_nn_align4"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
TENSILE = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x192x64_MI16x16x1_SN_LDSB1_AFC1_AG0_AFEM1_AFEM1_ASEM1_CLR1"


@pytest.mark.parametrize(
    ("full", "expected"),
    [
        (ADD, "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, …>"),
        (f"void elementwise<128, 2, {LOADED}>()", "elementwise<128, 2, MulFunctor<float>>"),
        (f"void fill<{POWER}, std::array<char*, 2ul> >()", "fill<pow_tensor_scalar_kernel_impl<float, float>, …>"),
        (f"void reduce<512, {REDUCE} >()", "reduce<512, ReduceOp<float, sum_functor, unsigned int, float, 4>>"),
        (f"void f<__nv_hdl_wrapper_t<true, false, false, {TAG}, int (int)> >()", "f<compare_scalar_kernel<BFloat16>>"),
        (f"void cutlass::Kernel<{CUTLASS}>({CUTLASS}::Params)", f"Kernel<{CUTLASS}>"),
        ("void (anonymous namespace)::softmax<float, 10, true>(float*, int)", "softmax<float, 10, true>"),
        ("void <unnamed>::softmax<float>(float*)", "softmax<float>"),
        ("void `anonymous namespace'::softmax<float>(float*)", "softmax<float>"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float>(int)", "gemvx::kernel<int, float>"),
        ("std::enable_if<(((8)>(0)))&&a::Convert<b::B>::exists, void>::type norm<b::B, 8>(b::B*)", "norm<B, 8>"),
        ("void sort<less, thrust::operator< <int>, a::operator()>(int)", "sort<less, thrust::operator<<int>, a>"),
        ("a::Pointer::operator->()", "Pointer::operator->"),
        ("foo(int)::{lambda(char, a::B<int>)#2}::operator()(char) const", "foo"),
        ("void deep_ep::internode_ll::dispatch<true, fill(int)::$_0>(void*)", "internode_ll::dispatch<true, fill>"),
        ("void run<(4)<(8), (1 >> 2)>(int)", "run<(4)<(8), (1 >> 2)>"),
        ("void at::native::fill<4, float>(int) [clone .kd]", "fill<4, float>"),
        ("attn_fwd.kd", "attn_fwd"),
        ("_ZN5aiter12quant_kernelIDF16bLi256ELb1EEEvPT_i", "quant_kernel<bfloat16_t, 256, true>"),
        ("_ZTSN2at6native3xpu10CopyKernelIfEE", "CopyKernel<float>"),
        ("_Znot_mangled", "_Znot_mangled"),
        (f"{NCCL}(ncclDevKernelArgsStorage<4096ul>)", NCCL),
        (TENSILE, "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x192x64_…_CLR1"),
        # What is no C++ function's name stays as it is.
        *((same, same) for same in (
            "triton_poi_fused_add_0",
            "ampere_sgemm_128x64_nn",
            "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4",
            "Memcpy HtoD (Pageable -> Device)",
            "Memset (Device)",
            "aten::cat.out-dtype_Float-extraKey_1",
            "volta_h16gemm_<BF16,BF16,float>_nt_v1",
            "predictor_executor::run gif_thread_id:1454",
            "cut_off<at::native::Functor<float",
            "",
        )),
    ],
)  # fmt: skip
def test_a_short_name_says_what_the_kernel_is(full: str, expected: str) -> None:
    assert short(full) == expected


def test_names_are_told_apart_by_what_differs_and_by_no_more() -> None:
    fill = f"void {ELEMENTWISE}<4, at::native::FillFunctor<at::Opaque<LAMBDA> >, at::detail::Array<char*, 1> >(int)"
    within = "exp(at::Iterator&)::{lambda()#1}::operator()() const::{lambda(%s)#1}"
    told_apart = {
        ADD: "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, Array<…, 3>>",
        ADD.replace("char*, 3", "char*, 2"): "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, Array<…, 2>>",
        **{
            fill.replace("LAMBDA", within % kind): (
                f"vectorized_elementwise_kernel<4, FillFunctor<Opaque<exp::{{lambda()#1}}::{{lambda({kind})#1}}>>, …>"
            )
            for kind in ("int", "long")
        },
        **{name: name for name in ("ncclKernel_AllReduce(ncclWork*)", "ncclKernel_AllReduce(ncclDevComm*, ncclWork*)")},
        "void cub::Scan<int>()": "cub::Scan<int>",
        "void thrust::cub::Scan<int>()": "thrust::cub::Scan<int>",
    }
    assert short_names(told_apart) == told_apart


def test_of_real_names_none_is_shared_and_none_is_a_part_of_one() -> None:
    names = short_names(REAL)
    assert list(names) == sorted(set(REAL))
    assert len(set(names.values())) == len(names)
    for full, name in names.items():
        assert open_brackets(name) == open_brackets(full) == "", full
        assert re.match(r"[\w(<]", name)
        assert not GARBLED.match(name)
    # Few differ in nothing but their parameters.
    cut = [name for full, name in names.items() if full.startswith("void ") and name != full]
    assert sum(len(name) > 160 for name in cut) <= 20


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(REAL), max_size=60))
def test_short_names_depend_on_the_set_alone_and_are_their_own(chosen: list[str]) -> None:
    names = short_names(chosen)
    assert names == short_names(reversed(chosen))
    assert len(set(names.values())) == len(names)
    assert short_names(names.values()) == {name: name for name in names.values()}


@given(st.text("<>(){}[]:,-*&#' abKernel0_…", max_size=40))
def test_any_text_has_a_name(text: str) -> None:
    names = short_names([text, "Kernel"])
    assert len(set(names.values())) == len(names)
    assert open_brackets(text) or not open_brackets(names[text])


def test_a_name_within_names_is_read_once() -> None:
    nested = "float"
    for _ in range(12):
        nested = f"F<{nested}, {nested}>::type"
    # Reading each part again for each that it lies in would take minutes.
    assert short(f"void kernel<{nested}>(int)").startswith("kernel<F<F<F")
