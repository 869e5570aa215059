"""What is refused, diagnosed, noted or answered, and the words that say so:
`expected/refusals.txt`.

To add one, write its line there, after `$ parallel-core` or `>>>`, and let `python -m tests.golden`
write the answer.
"""

import shlex
import sys
import tempfile
from collections.abc import Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

from backends import BackendError, Device, load
from backends.devices import choose_devices, parse_device, parse_devices
from backends.installation.frameworks import Diagnosis, diagnose, diagnose_absence
from backends.installation.kernels import Kernels, Product
from backends.installation.probe import Probe
from backends.jax import profiler as jax_profiler
from backends.jax import program_trace
from backends.mxnet import profiler as mxnet_profiler
from backends.profiling import Doubt
from backends.registry.variants import check_device_kinds, choose_variants
from parallel_core.command_line import cli
from parallel_core.command_line.program import message_and_status
from parallel_core.doctor.frameworks import Attempt, examine_kernels
from parallel_core.doctor.host import examine_settings
from parallel_core.experiments import EXPERIMENTS
from parallel_core.experiments.runner import conclusions, counting, recordings, trial
from parallel_core.experiments.training_on_multiple_gpus import data_parallel, evaluate
from parallel_core.measurement import checks
from parallel_core.measurement.confidence_intervals import Interval
from parallel_core.measurement.result import Note, Result
from parallel_core.system.errors import REFUSED, RequestError
from parallel_core.system.machine import describe_machine
from parallel_core.traces.trace_files import read_timeline
from tests.parallel_core.experiments import test_answers
from tests.parallel_core.experiments.runner import test_guess
from tests.parallel_core.experiments.small import small
from tests.parallel_core.experiments.test_answers import result_with
from tests.parallel_core.traces.stored import TRACES
from tests.tree import ROOT

FILE = Path(__file__).parent / "expected" / "refusals.txt"


def slowness(core_type: str, environment: Mapping[str, str]) -> Diagnosis | None:
    """Return why MXNet multiplies slowly with OpenBLAS's kernels of a type of processor."""
    kernels = (Kernels("OpenBLAS", "0.3.13", core_type, 1),)
    fast = Probe("torch", "sync", "2.0", product=Product(512, 100.0))
    slow = Probe("mxnet", "sync", "1.9.1", kernels=kernels, product=Product(512, 14.5))
    attempts = (Attempt("torch", (fast,)), Attempt("mxnet", (slow,)))
    _, of_mxnet = examine_kernels(attempts, environment, {"avx2", "fma"})
    return of_mxnet.diagnosis


def run(experiment: str, devices: int = 3, **options: Any) -> Result:
    """Run an experiment on NumPy, as small as it can be but for some options."""
    backend = load("numpy", devices, "cpu", threads_per_device=1)
    return EXPERIMENTS[experiment].run(backend, **{**small(experiment), **options})


def answered(name: str, figures: Mapping[str, Interval], **fields: Any) -> str:
    """Return an experiment's answer, after its code, to a result with these figures."""
    answers = EXPERIMENTS[name].answer
    assert answers is not None
    given = answers(result_with(figures, **fields))
    assert given is not None
    return f"{given.code}: {given.sentence}"


def noted(trace: str) -> str:
    """Return what the reader of a stored trace notes, after the codes."""
    return "\n".join(map(_with_code, read_timeline(TRACES / trace).notes))


COMMAND, CALL = "$ parallel-core ", ">>> "
MODULES = (
    jax_profiler,
    mxnet_profiler,
    program_trace,
    checks,
    conclusions,
    counting,
    data_parallel,
    evaluate,
    recordings,
    trial,
    test_answers,
    test_guess,
)
"""The modules whose functions say what is noted, and those with results for examples."""
CALLED = {name: value for module in MODULES for name, value in vars(module).items()}
CALLED |= {
    called.__name__: called
    for called in (
        Device,
        answered,
        check_device_kinds,
        choose_devices,
        choose_variants,
        diagnose,
        diagnose_absence,
        examine_settings,
        load,
        noted,
        parse_device,
        parse_devices,
        run,
        slowness,
    )
}
"""What calls in the file use."""
STARTED = [name for name in ("mxnet", "torch") if find_spec(name) is not None]
"""The frameworks in this environment that run on several processes."""
STANDING_FOR = {
    "PYTHON": sys.executable,
    "SAVED": str(ROOT / "benchmarks/results/epyc-2-cores"),
    "CHECKOUT": str(ROOT),
    "MEMORY": f"{describe_machine()['memory_bytes'] / 1e9:.3g} GB",
    "INSTALLED": f"Installed: {', '.join(STARTED) or 'none'}",
}
"""Words in the file, and what each stands for in a command and in an answer."""


def refusals() -> str:
    """Return the file with the answers of today."""
    answers = []
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for line in FILE.read_text().splitlines():
            if line.startswith(COMMAND):
                answer = refusal_of_command(_in_full(line.removeprefix(COMMAND)))
            elif line.startswith(CALL):
                answer = answer_to_call(line.removeprefix(CALL))
            else:
                continue
            answers.append(f"{line}\n{_shortened(answer)}\n")
            assert list(Path().iterdir()) == [], f"{line} left a file"
    return "\n".join(answers)


def refusal_of_command(line: str) -> str:
    """Return the answer to a command that is refused, which must be in one line."""
    printed = StringIO()
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            cli.main(shlex.split(line), prog_name="parallel-core", standalone_mode=False)
    except (Exception, SystemExit) as error:
        message, status = message_and_status(error)
        assert (status, printed.getvalue()) == (REFUSED, ""), line
        return message
    raise AssertionError(f"{line} was not refused")


def answer_to_call(line: str) -> str:
    """Return what a call says: a sentence, with its code if it has one, or the error it raises."""
    try:
        said = eval(line, CALLED)
        return _with_code(said) if isinstance(said, Diagnosis | Doubt | Note) else str(said)
    except (BackendError, RequestError) as error:
        return f"{type(error).__name__}: {error}"


def _with_code(said: Diagnosis | Doubt | Note) -> str:
    return f"{said.code}: {said}"


def _in_full(text: str) -> str:
    for word, meaning in STANDING_FOR.items():
        text = text.replace(word, meaning)
    return text


def _shortened(text: str) -> str:
    for word, meaning in STANDING_FOR.items():
        text = text.replace(meaning, word)
    return text
