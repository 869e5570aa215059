"""The experiments of the chapter "Training on Multiple GPUs"."""

from parallel_core.experiments.experiment import Experiment
from parallel_core.measurement.sweep import Curves

__all__ = ["EXPERIMENTS"]

CHAPTER = "Training on Multiple GPUs"

EXPERIMENTS = (
    Experiment(
        name="data-parallel",
        chapter=CHAPTER,
        question="How fast does LeNet train from scratch when each batch is divided over the devices?",
        case="training, an epoch",
        metric="images_per_second",
        queued_case="training, an epoch",
        options={"full": {"epochs": 3}, "quick": {"epochs": 1, "limit": 60}},
    ),
    Experiment(
        name="allreduce",
        chapter=CHAPTER,
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
            dotted=("plain copy", "one TCP stream"),
            caption="Size over time, on logarithmic scales. The dotted curve is of every device copying its "
            "vector once, all at once: whatever sums the vectors must read and write as much. Between processes it is "
            "of one TCP stream that carries a vector once.",
        ),
        options={
            "full": {"rounds": 3, "sizes": "4KiB..64MiB"},
            "quick": {"rounds": 3, "sizes": "4KiB..4MiB"},
        },
    ),
    Experiment(
        name="building-blocks",
        chapter=CHAPTER,
        question="What do the chapter's small functions do to a few numbers, and what goes wrong in them?",
        exercise="small examples",
        case="allreduce",
        metric="allreduce_seconds",
        queued_case="get_params",
        options={"full": {"rounds": 50}, "quick": {"rounds": 20}},
    ),
    Experiment(
        name="batch-scaling",
        chapter=CHAPTER,
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
        chapter=CHAPTER,
        question="Which learning rate is best, and does it change with the number of devices?",
        exercise="exercise 2",
        case="1 device",
        metric="best_rate_ratio",
        queued_case="all devices, scaled batch",
        devices=4,
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
            "full": {"rounds": 2, "rates": "0.025,0.1,0.4"},
            "quick": {"rounds": 2, "rates": "0.025,0.05,0.1", "limit": 60},
        },
    ),
    Experiment(
        name="partitioning",
        chapter=CHAPTER,
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
        chapter=CHAPTER,
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
