"""Try a framework in a separate process: `python -m backends.installation.probe mxnet async` prints one line of JSON.

Importing a framework may abort, block, or change how many threads another one takes. Such a process, under a deadline,
finds out whether it works.
"""

import os
import sys
from dataclasses import dataclass, field

import msgspec
import numpy as np

from backends.errors import BackendError
from backends.installation.frameworks import Diagnosis, Gpus, failure_of, installation_of
from backends.installation.kernels import Kernels, Product, kernels_of, product_of
from backends.registry import load

DEFAULT_ENGINE = "default"
"""Stands for a backend's own default engine."""


@dataclass(frozen=True)
class Probe:
    """The outcome of loading a framework with one engine and multiplying small matrices; `failure` is None if it works.

    `imported` is whether the framework's import, which is the same for every engine, succeeded; `kernels` are the
    libraries that compute for it on a CPU, and `product` is how fast they do on one core.
    """

    framework: str
    engine: str
    version: str = ""
    gpus: Gpus = field(default_factory=Gpus)
    failure: Diagnosis | None = None
    imported: bool = True
    kernels: tuple[Kernels, ...] = ()
    product: Product | None = None


def probe(framework: str, engine: str) -> Probe:
    """Load a backend on one CPU device, multiply matrices on it, and list the GPUs that it finds.

    Imports the framework into this process. `engine` is `async`, `sync` or DEFAULT_ENGINE. Never raises.
    """
    x = np.array([[1, 2], [3, 4]], dtype=np.float32)
    declared = installation_of(framework)
    try:
        backend = load(framework, 1, "cpu", None if engine == DEFAULT_ENGINE else engine, threads_per_device=1)
        loaded = backend.asarray(x, backend.devices[0])
        product = backend.to_numpy(backend.launch(backend.ops.matmul, loaded, loaded))
        if not np.array_equal(product, x @ x):
            raise BackendError(f"the multiplication of two small matrices is wrong: {product.tolist()}")
        return Probe(
            framework,
            backend.engine,
            str(backend.version),
            declared.gpus(),
            kernels=kernels_of(backend),
            product=product_of(backend),
        )
    except Exception as error:
        imported = (declared.module or framework) in sys.modules
        return Probe(framework, engine, failure=failure_of(framework, error), imported=imported)


def main() -> None:
    """Print the probe that the arguments name, framework and engine, as the last line of standard output."""
    line = msgspec.json.encode(probe(*sys.argv[1:]))
    # What frameworks print while they are imported may lack a line break at its end.
    sys.stdout.buffer.write(b"\n" + line + b"\n")
    sys.stdout.flush()
    # A framework's shutdown is not probed, and may take long.
    os._exit(0)


if __name__ == "__main__":
    main()
