"""JAX's profile: every program is seen on its device, linked with the call that launched it."""

from pathlib import Path

from backends import Backend
from backends.jax import profiler
from backends.jax.names import parse_program, program_name
from backends.profiling import case_text, read_trace, run_profiler
from tests.backends.profiling.work import COUNT, matrix, named, products


def test_every_product_is_seen_where_it_ran_and_after_it_was_launched(jax_backend: Backend, tmp_path: Path) -> None:
    xs = [matrix(jax_backend, device) for device in jax_backend.devices]
    path = tmp_path / "trace.json"
    with run_profiler(jax_backend, path) as mark, mark(case_text("products")):
        kept = [products(jax_backend, x) for x in xs]
        jax_backend.waitall()
        del kept
    trace = read_trace(path)
    assert profiler.is_from(trace)
    found = profiler.timeline_of(trace)
    seen = named(found, "matmul")
    assert {
        device: sum(span.device == str(device) for span in seen) for device in jax_backend.devices
    } == dict.fromkeys(jax_backend.devices, COUNT)
    assert {span.kind for span in seen} == {"compute"}
    assert {span.launched for span in seen} == {call.start for call in named(found, "launch matmul")}
    assert all(span.launched <= span.start < span.end for span in seen if span.launched is not None)


def test_a_program_s_name_says_its_function_and_device(jax_backend: Backend) -> None:
    assert parse_program("jit_" + program_name("<lambda>", jax_backend.devices[1])) == ("lambda", "cpu:2")
    assert parse_program("jit_other") is None
