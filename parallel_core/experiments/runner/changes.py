"""Rules on what would change an experiment's answer: the first one that applies is said."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from backends.registry.variants import Variant, found_on
from parallel_core.experiments.runner.metrics import Band, DirectAnswer
from parallel_core.measurement.result import Result
from parallel_core.system.formatting import figure
from parallel_core.system.machine import usable_cores

SHORT_BUDGET = 5
"""The seconds of a short run."""
UNEQUAL = 2
"""Two parts are unequal if the longer one takes at least this many times as long."""


@dataclass(frozen=True)
class Answered:
    """A result with its direct answer and those of its metrics, as rules read it; noise may leave
    no answer.
    """

    result: Result
    answers: Mapping[str, Sequence[Band]]
    direct: DirectAnswer | None = None

    def is_in(self, metric: str, *codes: str) -> bool:
        """Return whether a metric has answers, and all of them have one of the codes."""
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
        """Whether the noise leaves the experiment's question open."""
        if self.direct is not None:
            return self.direct.code is None
        answers_of_main = next(iter(self.answers.values()), ())
        return not answers_of_main


@dataclass(frozen=True)
class Change:
    """A rule: whether it applies to an answer, and a sentence, which names an option if it can."""

    when: Callable[[Answered], bool]
    then: str | Callable[[Answered], str]


def with_queue(then: str) -> Change:
    """Make the rule that says what should happen on an engine with a queue, if there was none."""

    def sentence(answered: Answered) -> str:
        # NumPy has no engine with a queue.
        if answered.result.backend["name"] == "numpy":
            return f"A backend with a queue (--backend torch): {then}."
        return f"An engine with a queue (--engine async): {then}."

    return Change(lambda answered: answered.result.backend["engine"] == "sync", sentence)


def without_queue(metric: str, codes: Sequence[str], then: str) -> Change:
    """Make the rule that says what should happen without a queue, if a metric has these codes."""
    return Change(
        lambda answered: answered.is_in(metric, *codes),
        f"An engine without a queue (--engine sync): {then}.",
    )


def larger(
    option: str, what: str, why: str, when: Callable[[Answered], bool] = lambda _: True
) -> Change:
    """Make the rule that advises twice the value of an option.

    For example `larger("size", "Larger matrices", "launching them matters less")`.
    """

    def sentence(answered: Answered) -> str:
        doubled = 2 * answered.result.parameters[option]
        written = option.replace("_", "-")
        return f"{what} (--{written} {doubled}): {why}."

    return Change(when, sentence)


def equal_parts(case: str, grown: str, option: str) -> Change:
    """Make the rule that says with which value of an option two cases would take equally long.

    The time of the case `grown` is proportional to the option.
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
    """Make the rule that names a variant, if a metric has one of `codes` and the backend has it."""

    def is_available(answered: Answered) -> bool:
        kind = "gpu" if answered.on_gpus else "cpu"
        kinds = found_on(variant.name).get(answered.result.backend["name"], ())
        return kind in kinds

    return Change(
        lambda answered: answered.is_in(metric, *codes) and is_available(answered),
        f"{what} (--variant {variant.name}).",
    )


def without_variant(variant: Variant, what: str) -> Change:
    """Make the rule that advises to leave out a variant, if the result was measured with it."""

    return Change(
        lambda answered: variant.name in answered.result.backend.get("variants", ()),
        f"{what} (without --variant {variant.name}).",
    )


def in_a_quiet_moment(result: Result) -> str:
    """Return the advice for a disturbed result: a short run, with a budget if it was longer."""
    is_longer = result.parameters.get("budget", 0) > SHORT_BUDGET
    fewer_seconds = f" (--budget {SHORT_BUDGET})" if is_longer else ""
    return f"A short run in a quiet moment{fewer_seconds}."


def _less_noise(answered: Answered) -> str:
    """Return the advice for an open answer: more rounds, or a quiet moment if it was disturbed."""
    if not answered.result.is_undisturbed:
        return in_a_quiet_moment(answered.result)
    return (
        "More rounds on a quiet machine (--rounds 20 --budget 60): the noise leaves the question "
        "open."
    )


LESS_NOISE = Change(lambda answered: answered.is_open, _less_noise)


def more_cores(threads: Callable[[Answered], int]) -> Change:
    """Make the rule that advises more cores, if the devices have more threads than there are."""

    def sentence(answered: Answered) -> str:
        cores = figure(usable_cores())
        return f"More cores than {cores}: {threads(answered)} threads of devices share them."

    return Change(lambda answered: threads(answered) > usable_cores(), sentence)


def _threads(answered: Answered) -> int:
    """Return the number of threads of all CPU devices together."""
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
