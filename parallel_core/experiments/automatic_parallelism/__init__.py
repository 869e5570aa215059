"""The experiments of the chapter "Automatic Parallelism"."""

from parallel_core.experiments.experiment import Experiment
from parallel_core.measurement.sweep import Curves

__all__ = ["EXPERIMENTS"]

CHAPTER = "Automatic Parallelism"

EXPERIMENTS = (
    Experiment(
        name="parallel",
        chapter=CHAPTER,
        question="Do two devices work at the same time when nobody tells them to?",
        case="on all together",
        metric="parallel_speedup",
        queued_case="on all together",
        calibrated=("size",),
        options={"full": {"rounds": 5}, "quick": {"rounds": 3, "size": 400}},
    ),
    Experiment(
        name="overlap",
        chapter=CHAPTER,
        question="Can results travel to another device while the next ones are computed?",
        case="run and copy together",
        metric="overlap_efficiency",
        queued_case="run",
        calibrated=("size", "copies"),
        options={"full": {"rounds": 5}, "quick": {"rounds": 3, "size": 500}},
    ),
    Experiment(
        name="independent-ops",
        chapter=CHAPTER,
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
        chapter=CHAPTER,
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
        chapter=CHAPTER,
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
        chapter=CHAPTER,
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
        chapter=CHAPTER,
        question="What does the graph of a training step look like, and how fast could it be?",
        exercise="the figure of a two-layer MLP",
        case="freely scheduled",
        metric="bound_fraction",
        queued_case="freely scheduled",
        devices=3,
        options={"full": {"rounds": 10}, "quick": {"rounds": 5}},
    ),
)
