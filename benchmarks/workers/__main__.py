"""Measure with a module of this package: `python -m benchmarks.workers NAME JSON`.

The JSON object has the arguments of the module's `measure`. What that returns is printed as one,
joined by `kernels`: the libraries that computed for each framework that it names, in words.
"""

import json
import os
import sys
from dataclasses import asdict
from importlib import import_module

from backends.installation.kernels import libraries_of
from parallel_core.system.formatting import library_in_words


def main(name: str, arguments: str) -> None:
    """Call the module's `measure` and print its answer."""
    measured = import_module(f"benchmarks.workers.{name}").measure(**json.loads(arguments))
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    kernels = {
        framework: [library_in_words(asdict(one)) for one in libraries_of(framework, threads)]
        for framework in measured["versions"]
        if framework in sys.modules
    }
    print(json.dumps({**measured, "kernels": kernels}))


if __name__ == "__main__":
    main(*sys.argv[1:])
