"""Time MXNet's own collective, pushpull of its key-value store, on cpu(1) and cpu(2)."""

from typing import Any

from backends.installation.cuda_libraries import load_cuda_libraries
from benchmarks.workers.answer import answer, compose
from benchmarks.workers.environment import set_environment
from benchmarks.workers.vectors import drawn, problem, time_calls


def measure(sizes: list[int]) -> dict[str, Any]:
    """Time both kinds of store at each size; the cases are named `kvstore local, SIZE B` and `kvstore device, …`."""
    set_environment(threads=1)
    load_cuda_libraries()
    import mxnet as mx

    cases, problems = [], []
    for kind in ("local", "device"):
        store = mx.kv.create(kind)
        for size in sizes:
            data = [mx.nd.array(drawn(size, i), ctx=mx.cpu(i + 1)) for i in range(2)]
            store.init(str(size), mx.nd.zeros_like(data[0]))

            def call(store: Any = store, size: int = size, data: list[Any] = data) -> None:
                store.pushpull(str(size), data, out=data)
                mx.nd.waitall()

            call()
            problems += problem(f"kvstore {kind}, {size} B", [x.asnumpy() for x in data])
            for x in data:
                x[:] = 0
            cases.append(time_calls(size, f"kvstore {kind}", call))
    return compose(cases, {"mxnet": mx.__version__}, problems)


if __name__ == "__main__":
    answer(measure)
