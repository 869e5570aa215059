"""In traces of other people's programs, kernels, threads and GPUs have names, and what no call launched is said."""

from pathlib import Path

from backends.profiling import HOST_DEVICE
from parallel_core.trace_analysis.trace_files import read_timeline

TRACES = Path(__file__).parent / "one_gpu"


def test_kernels_threads_and_gpus_have_names() -> None:
    timeline = read_timeline(TRACES / "mi250_minitoy.json.gz")
    assert {(span.device, span.queue) for span in timeline.spans} == {
        ("gpu:2", "stream 0"),
        (HOST_DEVICE, "thread 597913 (python3)"),
        (HOST_DEVICE, "thread 598009 (pt_autograd_0)"),
    }
    assert "gpu:2 is AMD Radeon Graphics" in timeline.notes
    assert timeline.unlinked == 0
    named = {span.operator: span.name for span in timeline.spans if span.device != HOST_DEVICE}
    assert len(set(named.values())) == len(named)
    assert sorted(named.values()) == [
        "Cijk_Ailk_Bjlk_SB_Bias_AS_SAV_UserArgs_MT64x16x16_MI16x16x1_SN_LDSB0_…_1",
        "Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32_MI16x16x1_SN_LDSB0_…_1",
        "Memcpy HtoD (Host -> Device)",
        "elementwise_kernel<128, 2, direct_copy_kernel_cuda>",
        "elementwise_kernel<128, 2, mse_backward_cuda_kernel>",
        "multi_tensor_apply_kernel<TensorListMetadata<2>, …, plus<float>, float>",
        "reduce_kernel<128, 4, ReduceOp<float, sum_functor, unsigned int, …>>",
        "reduce_kernel<512, 1, ReduceOp<float, MeanOps, unsigned int, float, 4>>",
        "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, …>",
        "vectorized_elementwise_kernel<4, FillFunctor<float>, …>",
        "vectorized_elementwise_kernel<4, launch_clamp_scalar, …>",
        "vectorized_elementwise_kernel<4, mse_kernel_cuda, …>",
        "vectorized_elementwise_kernel<4, threshold_kernel_impl<float>, …>",
    ]


def test_operations_that_were_launched_before_the_recording_are_counted() -> None:
    timeline = read_timeline(TRACES / "h100_launched_before.json.gz")
    assert timeline.unlinked == 60
    assert [span.launched for span in timeline.spans if span.device != HOST_DEVICE].count(None) == 60
    assert any(note.startswith("60 of 120 operations on devices are linked to no launch") for note in timeline.notes)
