"""Rules on what would change an experiment's answer: the first that applies is said."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from backends.registry.variants import Variant, found_on
from parallel_core.experiments.runner.metrics import Band
from parallel_core.measurement.result import Result
from parallel_core.system.formatting import figure
from parallel_core.system.machine import usable_cores

UNEQUAL = 2
"""How many times as long as the shorter part the longer one takes when they are unequal."""


@dataclass(frozen=True)
class Answered:
    """A result with its metrics' answers, as rules read it; noise may leave a metric none."""

    result: Result
    answers: Mapping[str, Sequence[Band]]

    def is_in(self, metric: str, *codes: str) -> bool:
        """Return whether a metric has an answer, and no other than these."""
        answers = self.answers.get(metric, ())
        return bool(answers) and all(band.code in codes for band in answers)

    @property
    def devices(self) -> Sequence[str]:
        """The names of the devices."""
        return tuple(self.result.backend["devices"])

    @property
    def on_gpus(self) -> bool:
        """Whether the first device is a GPU."""
        return self.devices[0].startswith("gpu")

    def median(self, case: str) -> float:
        """Return the median seconds of a case."""
        return next(timed.median for timed in self.result.cases if timed.name == case)

    @property
    def is_open(self) -> bool:
        """Whether the noise leaves the main metric open."""
        return not next(iter(self.answers.values()), ())


@dataclass(frozen=True)
class Change:
    """A rule: when it applies, and a sentence, which names an option if one would help."""

    when: Callable[[Answered], bool]
    then: str | Callable[[Answered], str]


def with_queue(then: str) -> Change:
    """Say what should happen on an engine that queues, for a result of one that does not."""

    def sentence(answered: Answered) -> str:
        # NumPy is the reference, and has no engine that queues.
        if answered.result.backend["name"] == "numpy":
            return f"A backend with a queue (--backend torch): {then}."
        return f"An engine with a queue (--engine async): {then}."

    return Change(lambda answered: answered.result.backend["engine"] == "sync", sentence)


def without_queue(metric: str, codes: Sequence[str], then: str) -> Change:
    """Say what should happen on an engine without a queue, if a metric means one of `codes`."""
    return Change(
        lambda answered: answered.is_in(metric, *codes),
        f"An engine without a queue (--engine sync): {then}.",
    )


def larger(
    option: str, what: str, why: str, when: Callable[[Answered], bool] = lambda _: True
) -> Change:
    """Say that twice the size would change it.

    For example `larger("size", "Larger matrices", "launching them matters less")`.
    """

    def sentence(answered: Answered) -> str:
        size = answered.result.parameters[option]
        return f"{what} (--{option.replace('_', '-')} {2 * size}): {why}."

    return Change(when, sentence)


def equal_parts(case: str, grown: str, option: str) -> Change:
    """Say with which value of an option two cases would take equally long.

    The time of the case `grown` grows as the option does.
    """

    def unequal(answered: Answered) -> bool:
        shorter, longer = sorted((answered.median(case), answered.median(grown)))
        return longer >= UNEQUAL * shorter

    def sentence(answered: Answered) -> str:
        factor = answered.median(case) / answered.median(grown)
        value = max(1, round(answered.result.parameters[option] * factor))
        return (
            f"Parts that take equally long (--{option} {value}): little can be saved while they "
            "are so unequal."
        )

    return Change(unequal, sentence)


def with_variant(variant: Variant, what: str, metric: str, *codes: str) -> Change:
    """Name a variant that would undo what a metric shows, where the backend has it."""

    def is_there(answered: Answered) -> bool:
        kind = "gpu" if answered.on_gpus else "cpu"
        kinds = found_on(variant.name).get(answered.result.backend["name"], ())
        return kind in kinds

    return Change(
        lambda answered: answered.is_in(metric, *codes) and is_there(answered),
        f"{what} (--variant {variant.name}).",
    )


def without_variant(variant: Variant, what: str) -> Change:
    """Say what is there without a variant, for a result with it."""
    says = f"{what} (without --variant {variant.name})."
    return Change(
        lambda answered: variant.name in answered.result.backend.get("variants", ()), says
    )


def in_a_quiet_moment(result: Result) -> str:
    """Say what helps against other work: fewer seconds if there is a budget, not more rounds."""
    fewer_seconds = " (--budget 5)" if "budget" in result.parameters else ""
    return f"A short run in a quiet moment{fewer_seconds}."


def _less_noise(answered: Answered) -> str:
    if not answered.result.is_undisturbed:
        return in_a_quiet_moment(answered.result)
    return (
        "More rounds on a quiet machine (--rounds 20 --budget 60): the noise leaves the question "
        "open."
    )


LESS_NOISE = Change(lambda answered: answered.is_open, _less_noise)


def more_cores(threads: Callable[[Answered], int]) -> Change:
    """Say that more cores would change it, if more threads of devices share them."""

    def sentence(answered: Answered) -> str:
        cores = figure(usable_cores())
        return f"More cores than {cores}: {threads(answered)} threads of devices share them."

    return Change(lambda answered: threads(answered) > usable_cores(), sentence)


def _threads(answered: Answered) -> int:
    """Return how many threads the CPU devices have."""
    backend = answered.result.backend
    cpus = [device for device in answered.devices if device.startswith("cpu")]
    workers = int(backend.get("workers_per_device", 1))
    return len(cpus) * workers * int(backend["threads_per_device"])


MORE_CORES = more_cores(_threads)
MORE_CORES_OR_GPUS = Change(
    lambda _: True,
    lambda _: (
        f"More cores than {figure(usable_cores())}, or GPUs, which copy by themselves "
        "(--device-kind gpu)."
    ),
)
