"""What is asked for: a frozen `Request`, which is also the line of JSON that a worker reads.

A field that is an option of every experiment's command is annotated as one (`Option`), and declared
nowhere else. Values stand as they are written there, so that the command can be written again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Self, get_args, get_origin, get_type_hints

import msgspec

from parallel_core.system.errors import RequestError
from parallel_core.system.files import STANDARD_OUTPUT

Written = str | int | float
"""A value as it is written behind an option."""
MOST_PROCESSES = 1024
"""The largest number of processes, or of threads of a device."""


@dataclass(frozen=True)
class Option:
    """An option of a command, without its name, type and default, which are those of a field."""

    help: str = ""
    """The help; a word in braces stands for what an experiment's command has in its place."""
    metavar: str | None = None
    most: int = MOST_PROCESSES
    """The largest number that it takes."""
    only_with: str = ""
    """The type without which as an argument a program has no such option; empty: all have it."""
    for_one: bool = False
    """Whether it is refused if several backends are named."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is measured: an experiment on a backend. Each field changes what a result says."""

    experiment: str
    backend: Annotated[str, Option("{backend}", "NAME")] = ""
    engine: Annotated[str | None, Option("Default: async if the backend has it.", "async|sync")] = (
        None
    )
    devices: Annotated[int | str | None, Option("{devices}")] = None
    """How many logical devices a process has, or their names; None: as many as usual."""
    device_kind: Annotated[str, Option(metavar="auto|cpu|gpu")] = "auto"
    threads: Annotated[
        int | None, Option("Threads per CPU device. Default: its share of the cores.")
    ] = None
    workers: Annotated[
        int,
        Option("Workers per CPU device, each with these threads.", most=256, for_one=True),
    ] = 1
    variant: Annotated[
        tuple[str, ...],
        Option("How it schedules; --explain lists the names. Repeatable.", "NAME", for_one=True),
    ] = ()
    data_dir: Annotated[
        Path | None,
        Option("Where the four files of Fashion-MNIST are.", only_with="Dataset"),
    ] = None
    parameters: Mapping[str, Written] = field(default_factory=dict)
    """The values that are given of the experiment's parameters, by the names of their options."""
    count: int | None = None
    """The fewest repetitions that are recorded to count order; None: as many as usual."""
    sizes_chosen: bool = False
    """Whether no user gave the sizes: a comparison, or another process of the same run, did."""


@dataclass(frozen=True, kw_only=True)
class Files:
    """What is written."""

    json: Annotated[Path | None, Option("The results as JSON; - for standard output.", "FILE")] = (
        None
    )
    plot: Annotated[Path | None, Option("A picture, as SVG.", "FILE", for_one=True)] = None
    trace: Annotated[
        Path | None,
        Option(
            "A Chrome trace (.json or .json.gz) of one more repetition, from the framework's own "
            "profiler.",
            "FILE",
            for_one=True,
        ),
    ] = None
    timeline: Annotated[
        Path | None,
        Option(
            "A picture of that repetition, a lane for each queue, as SVG.", "FILE", for_one=True
        ),
    ] = None
    checkpoint: Annotated[
        Path | None,
        Option(
            "Keep the training in DIR/checkpoint.npz, after each epoch.",
            "DIR",
            only_with="Checkpointing",
            for_one=True,
        ),
    ] = None
    checkpoint_steps: Annotated[
        int | None,
        Option(
            "And after each N steps of one.",
            "N",
            most=1_000_000,
            only_with="Checkpointing",
            for_one=True,
        ),
    ] = None
    resume: Annotated[
        bool,
        Option(
            "Go on from the checkpoint in DIR, if there is one.",
            only_with="Checkpointing",
            for_one=True,
        ),
    ] = False

    @property
    def is_recorded(self) -> bool:
        """Whether one more repetition is recorded by the framework's profiler."""
        return self.trace is not None or self.timeline is not None


@dataclass(frozen=True, kw_only=True)
class Words:
    """What is said."""

    details: Annotated[bool, Option("All figures, not only what fits a screen.")] = False
    guess: Annotated[str | None, Option("{guess}", "{guess_metavar}", for_one=True)] = None


def declared_by(part: type) -> dict[str, Option]:
    """Return the options of a request's part, by the names of its fields."""
    declared: dict[str, Option] = {}
    for name, annotation in get_type_hints(part, include_extras=True).items():
        if get_origin(annotation) is Annotated:
            _type, declared[name] = get_args(annotation)
    return declared


@dataclass(frozen=True, kw_only=True)
class Request:
    """What one process is asked to measure, to write and to say."""

    work: Work
    files: Files = Files()
    words: Words = Words()

    @classmethod
    def of(cls, experiment: str, options: Mapping[str, Any]) -> Self:
        """Make a request from options by name; those that no part has are the experiment's own.

        An option that is None is left out, and a parameter with several values has commas between
        them.
        """
        given = {name: value for name, value in options.items() if value is not None}

        def taken_by(part: type) -> dict[str, Any]:
            names = [declared.name for declared in fields(part) if declared.name in given]
            return {name: given.pop(name) for name in names}

        files, words = Files(**taken_by(Files)), Words(**taken_by(Words))
        fixed = taken_by(Work)
        parameters = {name: _written(value) for name, value in given.items()}
        work = Work(experiment=experiment, **fixed, parameters=parameters)
        return cls(work=work, files=files, words=words)

    def check(self) -> None:
        """Raise RequestError if what is asked for contradicts itself."""
        files = self.files
        if files.trace == STANDARD_OUTPUT:
            raise RequestError("--trace needs a file: standard output shows what was measured")
        if files.checkpoint is None and files.resume:
            raise RequestError("--resume needs --checkpoint DIR")
        if files.checkpoint is None and files.checkpoint_steps is not None:
            raise RequestError("--checkpoint-steps needs --checkpoint DIR")

    def as_line(self) -> str:
        """Return the line of JSON that a worker reads."""
        # Names of files may hold bytes that are no text, which msgspec's writer refuses.
        return json.dumps(msgspec.to_builtins(self, enc_hook=str))

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Read what `as_line` returned; raises ValueError for anything else."""
        return msgspec.convert(json.loads(line), cls, dec_hook=lambda kind, value: kind(value))


def _written(value: Written | list[Written] | tuple[Written, ...]) -> Written:
    """Write the value of a parameter, which may be several."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else value
