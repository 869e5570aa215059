"""A profiler's trace of each thing that `benchmarks.gpu_check` measures, as PyTorch writes it.

python -m benchmarks.gpu.traces FOLDER [--device cpu]

Each holds a few repetitions, after others that are not recorded; `parallel-core trace` and ui.perfetto.dev read them.
"""

import argparse
import gzip
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from backends import HOST, Array, Backend, BackendError
from backends.profiling import run_profiler
from benchmarks.gpu.part import Place, load_one, load_two_streams
from benchmarks.gpu.small_operations import last_product
from benchmarks.gpu.training import ways_to_train
from parallel_core.experiments.runner.trial import Trial
from parallel_core.training.batches import Settings
from parallel_core.training.dataset import synthetic
from parallel_core.training.loop import train_epoch
from parallel_core.training.step import get_params

__all__ = ["main"]

SIZES = {"gpu": (2048, 256), "cpu": (32, 8)}
"""Of the products beside copies, and of small ones."""
PRODUCTS, SMALL_PRODUCTS, UNIT, UNTIMED = 10, 100, 25, 3
STEPS, BATCH = 4, {"gpu": 256, "cpu": 16}


def main(folder: Path, place: Place) -> None:
    """Write the traces, compressed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, backend, work in works(place):
        for _ in range(UNTIMED):
            work()
        backend.waitall()
        with tempfile.TemporaryDirectory() as temporary:
            path = Path(temporary) / "trace.json"
            with run_profiler(backend, path):
                work()
                backend.waitall()
            (folder / f"{name}.json.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        print(f"{folder / name}.json.gz", file=sys.stderr)


def works(place: Place) -> Iterator[tuple[str, Backend, Callable[[], object]]]:
    """Iterate over what is traced: a name, the backend and the work."""
    large, small = SIZES[place.kind]
    one = load_one(place)
    device, host = one.devices[0], HOST if place.kind == "gpu" else one.devices[1]
    x = Trial(one, {}).normal(large, device)
    arriving = one.asarray(np.ones((large, large), np.float32), host)
    yield "overlap", one, partial(products_and_copies, one, x, arriving)
    streams = load_two_streams(place)
    for count, name in ((1, "one-stream"), (2, "two-streams")):
        matrices = [Trial(streams, {}).normal(small, streams.devices[number % count]) for number in range(2)]
        yield f"small-products-{name}", streams, partial(small_products, streams, matrices)
        unit = streams.ops.as_unit(partial(last_product, streams.ops.matmul, UNIT))
        yield f"units-{name}", streams, partial(units, streams, unit, matrices)
    ways, _ = ways_to_train(place)
    data = synthetic("only speed is asked for", train=STEPS * BATCH[place.kind], test=10)
    for way, (backend, count) in ways.items():
        params = [get_params(backend, device) for device in backend.devices[:count]]
        settings = Settings(1, BATCH[place.kind], limit=STEPS)
        name = way.replace(",", "").replace(" ", "-")
        yield f"training-{name}", backend, partial(train_epoch, backend, params, data, settings, 1)


def products_and_copies(backend: Backend, x: Array, arriving: Array) -> None:
    """Compute results that travel to the host while the next are computed, and let others arrive."""
    place = HOST if backend.devices[0].kind == "gpu" else backend.devices[1]
    for _ in range(PRODUCTS):
        backend.copy_to(backend.launch(backend.ops.matmul, x, x), place)
        backend.copy_to(arriving, backend.devices[0])


def small_products(backend: Backend, matrices: list[Array]) -> None:
    """Launch small products one by one."""
    for _ in range(SMALL_PRODUCTS):
        for x in matrices:
            backend.launch(backend.ops.matmul, x, x)


def units(backend: Backend, unit: Callable[..., Array], matrices: list[Array]) -> None:
    """Launch as many small products, some at a time."""
    for _ in range(SMALL_PRODUCTS // UNIT):
        for x in matrices:
            backend.launch(unit, x)


if __name__ == "__main__":
    parser = argparse.ArgumentParser("traces", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    options = parser.parse_args()
    try:
        main(options.folder, Place("torch", options.device, rounds=1))
    except BackendError as error:
        sys.exit(f"traces: {error}")
