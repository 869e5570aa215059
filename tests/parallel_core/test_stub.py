"""Editors and type checkers see each experiment's function with its options: a stub declares them.

After an experiment or an option was added, write the declarations anew:

    python -m tests.parallel_core.test_stub
"""

import inspect
import textwrap
from pathlib import Path
from typing import get_type_hints

import parallel_core
from parallel_core.experiments import EXPERIMENTS, Experiment
from parallel_core.experiments.runner.counting import REPETITIONS
from parallel_core.experiments.runner.parameters import TIMING

STUB = Path(parallel_core.__file__).parent / "experiments" / "functions.pyi"
BEGIN = "# Written by `python -m tests.parallel_core.test_stub`:\n"


def test_the_stub_declares_every_experiment_with_its_options() -> None:
    _, declared = parts_of(STUB.read_text(encoding="utf-8"))
    assert declared == declarations()


def test_the_stub_declares_what_else_is_public() -> None:
    public, _ = parts_of(STUB.read_text(encoding="utf-8"))
    names = [line.rpartition(" as ")[2] for line in public.splitlines() if " as " in line]
    assert sorted(names) == sorted(parallel_core.__all__)


def parts_of(stub: str) -> tuple[str, str]:
    """Divide the stub's text into what is written by hand and the experiments' declarations."""
    by_hand, begin, declared = stub.partition(BEGIN)
    assert begin
    return by_hand, declared


def declarations() -> str:
    return "\n".join(map(declaration, EXPERIMENTS.values()))


def declaration(experiment: Experiment) -> str:
    """Return the declaration of an experiment's function, a line for each of its options."""
    lines = ["backend: backends.Backend", "*"]
    types = get_type_hints(experiment.program)
    for name, option in inspect.signature(experiment.program).parameters.items():
        if name != "trial":
            lines.append(typed(experiment, option, inspect.formatannotation(types[name])))
    for parameter in TIMING:
        default = getattr(experiment, parameter.name)
        if default is not None:
            lines.append(f"{parameter.name}: {parameter.type.__name__} = {default}")
    lines.append(f"count: int = {REPETITIONS}")
    function = f"run_{experiment.name.replace('-', '_')}"
    question = textwrap.fill(experiment.question, 88).replace("\n", "\n    ")
    options = "".join(f"    {line},\n" for line in lines)
    return f'def {function}(\n{options}) -> Result:\n    """{question}"""\n'


def typed(experiment: Experiment, option: inspect.Parameter, type_: str) -> str:
    """Return an option with its type, and its default if it has one."""
    type_ = type_.replace("'", '"')
    if option.name in experiment.calibrated:
        # The run chooses it unless it is given.
        return f"{option.name}: {type_.removesuffix(' | None')} | None = None"
    if option.default is option.empty:
        return f"{option.name}: {type_}"
    is_plain = isinstance(option.default, int | float | str | tuple | None)
    default = repr(option.default).replace("'", '"') if is_plain else "..."
    return f"{option.name}: {type_} = {default}"


if __name__ == "__main__":
    by_hand, _ = parts_of(STUB.read_text(encoding="utf-8"))
    STUB.write_text(f"{by_hand}{BEGIN}{declarations()}", encoding="utf-8")
