"""The experiments of the chapter "Asynchronous Computation"."""

from parallel_core.experiments.experiment import Experiment
from parallel_core.measurement.sweep import Curves

__all__ = ["EXPERIMENTS"]

CHAPTER = "Asynchronous Computation"

EXPERIMENTS = (
    Experiment(
        name="async",
        chapter=CHAPTER,
        question="When does control return, what does waiting wait for, and what does it cost?",
        case="increments, waiting once",
        metric="dispatch_fraction",
        queued_case="10 products",
        options={"full": {"rounds": 3}, "quick": {"rounds": 3, "size": 500, "steps": 2000}},
    ),
    Experiment(
        name="barriers",
        chapter=CHAPTER,
        question="Does waiting for one intermediate result wait for the work that is queued behind it?",
        exercise="exercise 2 of the MXNet edition",
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
        chapter=CHAPTER,
        question="How large must an operation be for computing it, and not issuing it, to set the pace?",
        exercise="exercise 1 of the MXNet edition",
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
        chapter=CHAPTER,
        question="Can asynchrony be seen on a CPU, on a framework that is eager and on others?",
        exercise="exercise 1 of the PyTorch edition",
        case="10 products",
        metric="dispatch_fraction",
        queued_case="10 products",
        options={
            "full": {"rounds": 5, "against": "none"},
            "quick": {"rounds": 3, "size": 500, "against": "none"},
        },
    ),
)
