"""The state of the frameworks: each engine multiplies two small matrices in a separate process.

A framework that is not installed here is tried in the environment that `make` made for it, if there
is one. The same processes find the libraries that compute for a framework, and their speed.
"""

import asyncio
import re
import shlex
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec

from backends.installation.frameworks import (
    ROOT,
    Diagnosis,
    diagnose,
    diagnose_absence,
    install_command,
    installation_of,
    is_installed,
)
from backends.installation.kernels import CORE_TYPE, Kernels, better_core_type
from backends.installation.probe import DEFAULT_ENGINE, Probe
from backends.registry import title
from parallel_core.compare.environments import CHECKOUT, python_with
from parallel_core.doctor import Finding, FindingState
from parallel_core.system.formatting import figure, library_in_words, listed
from parallel_core.system.subprocesses import Outcome, supervise

REFERENCE = "numpy"
"""The framework without queues, which alone is not enough."""
FAR_BELOW = 0.5
"""The share of the fastest framework's rate below which a framework is slow."""
ENGINES_IN_WORDS = {"async": "with queues", "sync": "without queues"}
BARE_PIP = re.compile(r"(^|&& )pip ")


@dataclass(frozen=True)
class Attempt:
    """The probes of a backend, one for each engine that was tried, and the Python that ran them.

    Without probes its framework is not installed.
    """

    name: str
    probes: tuple[Probe, ...] = ()
    python: str = sys.executable

    @property
    def title(self) -> str:
        """The framework's name for readers."""
        return title(self.name)

    @property
    def working(self) -> tuple[Probe, ...]:
        """The probes of the engines that work."""
        return tuple(probe for probe in self.probes if probe.failure is None)


def try_backend(name: str, deadline: float, checkout: Path = CHECKOUT) -> Attempt:
    """Try a backend on each of its engines, in processes that may take `deadline` seconds each.

    If a process could not import the framework, or took too long, no other engine is tried: the
    import is the same for all. `checkout` is the folder with the environments that `make` made.
    """
    python = python_with(name, checkout)
    if python == sys.executable and not is_installed(name):
        return Attempt(name)
    probes: list[Probe] = []
    for engine in installation_of(name).engines or (DEFAULT_ENGINE,):
        # The option -P ignores the current folder, which may be another checkout.
        command = [python, "-P", "-m", "backends.installation.probe", name, engine]
        outcome = asyncio.run(supervise(command, deadline, set()))
        probe = _read_probe(name, engine, outcome, deadline)
        probes.append(probe)
        if outcome.timed_out or not probe.imported:
            break
    return Attempt(name, tuple(probes), python)


def _read_probe(name: str, engine: str, outcome: Outcome, deadline: float) -> Probe:
    """Return the probe that a process printed, or a failed probe with the reason."""
    lines = outcome.output.splitlines()
    if lines and outcome.status == 0:
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(lines[-1], type=Probe)
    reason = outcome.reason(deadline)
    if outcome.timed_out or outcome.status < 0:
        reason = f"the process that loaded it {reason}"
    return Probe(name, engine, failure=diagnose(name, outcome.errors) or Diagnosis(reason))


def working_in_words(attempts: Sequence[Attempt]) -> tuple[str, ...]:
    """Return the frameworks that work, NumPy last, with remarks: `JAX (in .venv-jax)`."""
    names = []
    for attempt in sorted(attempts, key=lambda attempt: attempt.name == REFERENCE):
        if not attempt.working:
            continue
        remarks = []
        if attempt.python != sys.executable:
            remarks.append(f"in {Path(attempt.python).parents[1].name}")
        if len(attempt.working) < len(attempt.probes):
            remarks.append(f"only {_engines_in_words(attempt)}")
        gpus = len(attempt.working[0].gpus.devices)
        if gpus:
            remarks.append("finds 1 GPU" if gpus == 1 else f"finds {gpus} GPUs")
        name = attempt.title
        if remarks:
            name += f" ({', '.join(remarks)})"
        names.append(name)
    return tuple(names)


def _engines(attempt: Attempt) -> list[str]:
    """Return the engines of a backend that work."""
    return [probe.engine for probe in attempt.working]


def _engines_in_words(attempt: Attempt) -> str:
    """Say on which engines a backend works: `with queues and without queues`."""
    return listed([ENGINES_IN_WORDS[engine] for engine in _engines(attempt)])


def examine_frameworks(attempts: Sequence[Attempt]) -> Iterator[Finding]:
    """Yield the findings on frameworks and engines; one framework besides NumPy must work."""
    for attempt in attempts:
        if not attempt.probes:
            diagnosis = for_shell(diagnose_absence(attempt.name))
            yield Finding(attempt.name, "absent", "not installed", diagnosis, {"engines": []})
        if attempt.working:
            yield _working(attempt)
        yield from _failures(attempt)
    if not any(attempt.working for attempt in attempts if attempt.name != REFERENCE):
        cause = "No framework with queues works, and NumPy has none"
        diagnosis = for_shell(Diagnosis(cause, install_command("torch"), "no-framework"))
        yield Finding("frameworks", "broken", "none with queues works", diagnosis)


def _working(attempt: Attempt) -> Finding:
    """Return the finding on a framework that works."""
    probe = attempt.working[0]
    built_for = f", built for {probe.gpus.cuda}" if probe.gpus.cuda else ""
    elsewhere = "" if attempt.python == sys.executable else f" in {attempt.python}"
    text = f"{probe.version}{built_for}; works {_engines_in_words(attempt)}{elsewhere}"
    figures = {
        "version": probe.version,
        "engines": _engines(attempt),
        "python": attempt.python,
    }
    return Finding(attempt.name, "fine", text, None, figures)


def _failures(attempt: Attempt) -> Iterator[Finding]:
    """Yield a finding on each failure of a backend; engines with the same failure share one."""
    engine_of_failure: dict[Diagnosis, str] = {}
    for probe in attempt.probes:
        if probe.failure is not None:
            engine_of_failure.setdefault(probe.failure, probe.engine)
    for failure, engine in engine_of_failure.items():
        name, subject = attempt.name, attempt.title
        if attempt.working:
            name = f"{attempt.name}, {engine} engine"
            subject = f"{attempt.title}'s {engine} engine"
        cause = f"{subject} cannot be used: {failure.cause}"
        command = failure.command
        if not command:
            cause += " (the command shows the whole message)"
            engine_argument = "" if engine == DEFAULT_ENGINE else f", engine={engine!r}"
            code = f"import backends; backends.load({attempt.name!r}{engine_argument})"
            # If the import blocks, Python prints its stack after a minute.
            python = shlex.quote(attempt.python)
            command = f'timeout -s ABRT 60 {python} -X faulthandler -c "{code}"'
        diagnosis = for_shell(Diagnosis(cause, command, failure.code), attempt.python)
        figures = {"engines": _engines(attempt), "python": attempt.python}
        yield Finding(name, "broken", "cannot be used", diagnosis, figures)


def for_shell(diagnosis: Diagnosis, python: str = sys.executable) -> Diagnosis:
    """Return a diagnosis with a command that can be pasted into this shell.

    `pip` becomes `PYTHON -m pip`, unless the shell's pip is that of the Python. In the checkout,
    `make` needs no folder.
    """
    command = diagnosis.command
    pip = shutil.which("pip")
    if pip is None or Path(pip).parent != Path(python).parent:
        pip_of_python = f"{shlex.quote(python)} -m pip "
        command = BARE_PIP.sub(lambda match: match[1] + pip_of_python, command)
    if Path().samefile(ROOT):
        command = command.replace(f"make -C {shlex.quote(str(ROOT))} ", "make ")
    return replace(diagnosis, command=command)


def examine_kernels(
    attempts: Sequence[Attempt],
    environment: Mapping[str, str],
    processor: Collection[str],
    is_disturbed: bool = False,
) -> Iterator[Finding]:
    """Yield a finding on each framework's libraries, with the reason if it multiplies slowly.

    `processor` are the processor's flags, as Linux names them. If other programs disturbed the
    machine, a slow framework is a problem only if a setting would help.
    """
    rates = {}
    for attempt in attempts:
        products = [probe.product.gflop_per_s for probe in attempt.working if probe.product]
        if products:
            rates[attempt] = max(products)
    fastest = max(rates, key=rates.__getitem__, default=None)
    for attempt, rate in rates.items():
        kernels = [asdict(library) for library in attempt.working[0].kernels]
        libraries = "; ".join(library_in_words(library) for library in kernels)
        speed = f"matrix multiplication at {figure(rate)} GFLOP/s on one core"
        text = f"{libraries}: {speed}" if libraries else speed
        diagnosis = None
        if fastest is not None and rate < FAR_BELOW * rates[fastest]:
            diagnosis = _slowness(attempt, fastest, environment, processor)
            if is_disturbed and not diagnosis.command:
                diagnosis = None
        state: FindingState = "doubtful" if diagnosis else "fine"
        figures = {"kernels": kernels, "gflop_per_s": rate}
        yield Finding(attempt.name, state, text, diagnosis, figures)


def _slowness(
    slow: Attempt, fast: Attempt, environment: Mapping[str, str], processor: Collection[str]
) -> Diagnosis:
    """Say why a framework multiplies slower than another, and name a setting if one would help."""
    cause = f"{slow.title} multiplies slower than {fast.title} here"
    core_type = _openblas_core_type(slow.working[0].kernels)
    better = better_core_type(core_type, frozenset(processor))
    if better is None:
        cause += ", and no setting helps: compare overlap, not seconds"
        return Diagnosis(cause, code="slow-kernels")
    cause += f": its OpenBLAS takes the kernels of {core_type}, and this processor has AVX2"
    if CORE_TYPE in environment:
        cause += f", but {CORE_TYPE} says so"
        return Diagnosis(cause, f"unset {CORE_TYPE}", "slow-kernels")
    return Diagnosis(cause, f"export {CORE_TYPE}={better}", "slow-kernels")


def _openblas_core_type(kernels: Sequence[Kernels]) -> str:
    """Return the type of processor whose kernels OpenBLAS takes; empty if there is no OpenBLAS."""
    for library in kernels:
        if library.library == "OpenBLAS" and library.instruction_set:
            return library.instruction_set
    return ""
