"""The experiments by the book's chapter: what each asks, and how a comparison runs it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from parallel_core.curves import Curves

__all__ = ["EXPERIMENTS", "Experiment", "Mode"]

Mode = Literal["full", "quick"]


@dataclass(frozen=True)
class Experiment:
    """An experiment as the command line, a comparison and a report know it."""

    name: str
    chapter: str
    question: str
    case: str
    """The case whose times a comparison sets side by side first."""
    metric: str
    """The figure that answers the question."""
    queued_case: str
    """The case that shows best how far control returns before all is done."""
    calibrated: tuple[str, ...] = ()
    """Parameters that a run chooses to suit the machine; a comparison gives the same ones to all its cells."""
    options: Mapping[Mode, Mapping[str, int | str]] = field(default_factory=dict)
    """The options that a comparison runs it with, in full and with --quick."""
    exercise: str = ""
    """The exercise, figure or remark of the chapter that it answers; empty for the chapters' own demonstrations."""
    devices: int = 2
    """Logical devices that it takes where nobody says; a comparison gives it as many at least."""
    curves: Curves | None = None
    """What is drawn of its series, where it sweeps over something."""

    @property
    def module(self) -> str:
        """The module in `parallel_core.experiments` that holds it, and explains it."""
        # `async` is a word of the language.
        return "asynchronous" if self.name == "async" else self.name.replace("-", "_")


EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {
        experiment.name: experiment
        for experiment in (
            Experiment(
                name="async",
                chapter="Asynchronous Computation",
                question="When does control return, what does waiting wait for, and what does it cost?",
                case="increments, waiting once",
                metric="dispatch_fraction",
                queued_case="10 products",
                options={"full": {"rounds": 3}, "quick": {"rounds": 3, "size": 500, "steps": 2000}},
            ),
            Experiment(
                name="barriers",
                chapter="Asynchronous Computation",
                question="Does waiting for one intermediate result wait for the work that is queued behind it?",
                exercise="exercise 2",
                case="wait, 64 behind on the same device",
                metric="added_wait_fraction",
                queued_case="waitall, 64 behind on the same device",
                calibrated=("size",),
                options={"full": {"rounds": 5}, "quick": {"rounds": 3, "size": 384}},
                curves=Curves(
                    over="queued",
                    quantity="seconds",
                    x_title="products behind the awaited one",
                    y_title="seconds until the wait ended",
                    log_x=False,
                    caption="A flat line is a wait that leaves alone what is queued behind.",
                ),
            ),
            Experiment(
                name="cost-model",
                chapter="Asynchronous Computation",
                question="How large must an operation be for computing it, and not issuing it, to set the pace?",
                exercise="exercise 1",
                case="increment of 2 elements",
                metric="smallest_t2_over_t1",
                queued_case="increment of 2 elements",
                options={"full": {"rounds": 5}, "quick": {"rounds": 3, "largest": 2**17}},
                curves=Curves(
                    over="elements",
                    quantity="seconds",
                    x_title="elements of the vector",
                    y_title="seconds per increment, waiting once",
                    log_y=True,
                    dotted=("longer of t1 and t2", "book's formula", "t1"),
                    caption="Flat where Python sets the pace, rising where computing does.",
                ),
            ),
            Experiment(
                name="eager-cpu",
                chapter="Asynchronous Computation",
                question="Can asynchrony be seen on a CPU, on a framework that is eager and on others?",
                exercise="exercise 1 of the eager framework's edition",
                case="10 products",
                metric="dispatch_fraction",
                queued_case="10 products",
                options={
                    "full": {"rounds": 5, "against": "none"},
                    "quick": {"rounds": 3, "size": 500, "against": "none"},
                },
            ),
            Experiment(
                name="parallel",
                chapter="Automatic Parallelism",
                question="Do two devices work at the same time when nobody tells them to?",
                case="on all together",
                metric="parallel_speedup",
                queued_case="on all together",
                calibrated=("size",),
                options={"full": {"rounds": 5}, "quick": {"rounds": 3, "size": 400}},
            ),
            Experiment(
                name="overlap",
                chapter="Automatic Parallelism",
                question="Can results travel to another device while the next ones are computed?",
                case="run and copy together",
                metric="overlap_efficiency",
                queued_case="run",
                calibrated=("size", "copies"),
                options={"full": {"rounds": 5}, "quick": {"rounds": 3, "size": 500}},
            ),
            Experiment(
                name="independent-ops",
                chapter="Automatic Parallelism",
                question="Does a framework run operations without dependencies in parallel on one device?",
                exercise="exercise 1",
                case="independent, 1 worker",
                metric="parallel_speedup",
                queued_case="independent, 1 worker",
                calibrated=("size",),
                options={"full": {"rounds": 5}, "quick": {"rounds": 3, "size": 250}},
            ),
            Experiment(
                name="small-ops",
                chapter="Automatic Parallelism",
                question="When single operations are small, does parallelism help even on one CPU or GPU?",
                exercise="exercise 2",
                case="all devices, size 128",
                metric="largest_speedup",
                queued_case="one device, size 128",
                curves=Curves(
                    over="size",
                    quantity="speedup",
                    x_title="side of the matrices",
                    y_title="speed-up over one device",
                    caption="How many times faster the same products are when spread over all devices, and on one "
                    "device with the threads of all, than on one device with its own.",
                ),
                options={"full": {"rounds": 5}, "quick": {"rounds": 3, "sizes": "8,32,128,256"}},
            ),
            Experiment(
                name="three-way",
                chapter="Automatic Parallelism",
                question="Can two devices compute while their results travel both ways between them?",
                exercise="exercise 3",
                case="all at once",
                metric="saved_fraction",
                queued_case="all at once",
                calibrated=("size", "copies"),
                options={"full": {"rounds": 3}, "quick": {"rounds": 3, "size": 500}},
            ),
            Experiment(
                name="dependencies",
                chapter="Automatic Parallelism",
                question="Are tasks that depend on each other across devices right, and as fast as they could be?",
                exercise="exercise 5",
                case="diamonds, freely scheduled",
                metric="bound_fraction",
                queued_case="diamonds, freely scheduled",
                calibrated=("size",),
                options={"full": {"rounds": 5}, "quick": {"rounds": 3, "size": 400}},
            ),
            Experiment(
                name="graph",
                chapter="Automatic Parallelism",
                question="What does the graph of a training step look like, and how fast could it be?",
                exercise="the figure of a two-layer MLP",
                case="freely scheduled",
                metric="bound_fraction",
                queued_case="freely scheduled",
                devices=3,
                options={"full": {"rounds": 10}, "quick": {"rounds": 5}},
            ),
            Experiment(
                name="data-parallel",
                chapter="Training on Multiple GPUs",
                question="How fast does LeNet train from scratch when each batch is divided over the devices?",
                case="training, an epoch",
                metric="images_per_second",
                queued_case="training, an epoch",
                options={"full": {"epochs": 3}, "quick": {"epochs": 1, "limit": 60}},
            ),
            Experiment(
                name="allreduce",
                chapter="Training on Multiple GPUs",
                question="How fast do all devices get the sum of their vectors, and which algorithm is best?",
                exercise="exercise 3",
                case="native, 4 MiB",
                metric="algbw_gb_per_s",
                queued_case="native, 4 MiB",
                curves=Curves(
                    over="bytes",
                    quantity="algbw_gb_per_s",
                    x_title="each device's vector",
                    y_title="GB/s",
                    log_y=True,
                    dotted=("plain copy",),
                    caption="Size over time, on logarithmic scales. The dotted curve is of every device copying its "
                    "vector once, all at once: whatever sums the vectors must read and write as much.",
                ),
                options={
                    "full": {"rounds": 3, "sizes": "4KiB..64MiB"},
                    "quick": {"rounds": 3, "sizes": "4KiB..4MiB"},
                },
            ),
            Experiment(
                name="building-blocks",
                chapter="Training on Multiple GPUs",
                question="What do the chapter's small functions do to a few numbers, and what goes wrong in them?",
                exercise="small examples",
                case="allreduce",
                metric="allreduce_seconds",
                queued_case="get_params",
                options={"full": {"rounds": 50}, "quick": {"rounds": 20}},
            ),
            Experiment(
                name="batch-scaling",
                chapter="Training on Multiple GPUs",
                question="Is a device worth more when the batch grows with the number of devices?",
                exercise="exercise 1",
                case="all devices, scaled batch",
                metric="scaled_batch_speedup",
                queued_case="all devices, scaled batch",
                curves=Curves(
                    over="devices",
                    quantity="images_per_second",
                    x_title="devices",
                    y_title="images a second",
                    log_x=False,
                    dotted=("k times one device",),
                    in_place_of_times=False,
                    caption="Images a second with the batch of one device, and with as many times that as there are "
                    "devices. The dotted curve is what one device does, times their number.",
                ),
                options={"full": {"rounds": 5, "steps": 8}, "quick": {"rounds": 3, "steps": 4}},
            ),
            Experiment(
                name="learning-rates",
                chapter="Training on Multiple GPUs",
                question="Which learning rate is best, and does it change with the number of devices?",
                exercise="exercise 2",
                case="1 device",
                metric="best_rate_ratio",
                queued_case="all devices, scaled batch",
                curves=Curves(
                    over="rate",
                    quantity="test_accuracy",
                    x_title="learning rate",
                    y_title="test accuracy",
                    in_place_of_times=False,
                    caption="Accuracy after short training on the same images. With the fixed batch the number of "
                    "devices should change nothing; with the scaled one there are fewer, larger steps.",
                ),
                options={
                    "full": {"rounds": 2},
                    "quick": {"rounds": 2, "rates": "0.025,0.05,0.1", "limit": 100},
                },
            ),
            Experiment(
                name="partitioning",
                chapter="Training on Multiple GPUs",
                question="Which way of dividing a network over devices is best, and when?",
                exercise="the figure of three ways to divide a network",
                case="data parallelism, width 4",
                metric="data_parallel_advantage",
                queued_case="data parallelism, width 4",
                curves=Curves(
                    over="width",
                    quantity="seconds",
                    x_title="width of the network",
                    y_title="seconds a step",
                    log_y=True,
                    dotted=("one device",),
                    caption="A network of width 1 has 8 channels and 32 units. The dotted curve is of one device.",
                ),
                options={"full": {"rounds": 5}, "quick": {"rounds": 3}},
            ),
            Experiment(
                name="batch-norm",
                chapter="Training on Multiple GPUs",
                question="By which rows' statistics does batch normalisation go, when the batch is divided?",
                exercise="the remark on batch normalization",
                case="synchronised statistics, 64 rows",
                metric="synchronising_cost",
                queued_case="synchronised statistics, 64 rows",
                curves=Curves(
                    over="rows",
                    quantity="difference",
                    x_title="rows per device",
                    y_title="difference of a step",
                    log_y=True,
                    in_place_of_times=False,
                    caption="How far a step with statistics of each device's rows is from the step of one device, as a "
                    "share of the largest change.",
                ),
                options={"full": {"rounds": 5}, "quick": {"rounds": 3, "rows": 64}},
            ),
        )
    }
)
