import collections.abc
from typing import Literal

import backends
import parallel_core.training.batches
import parallel_core.training.checkpoints
import parallel_core.training.dataset
import parallel_core.training.plan
from parallel_core.experiments.explanation import explain as explain
from parallel_core.measurement.result import Case as Case
from parallel_core.measurement.result import Result as Result
from parallel_core.measurement.timing import Benchmark as Benchmark
from parallel_core.run.prediction import predict as predict
from parallel_core.system.errors import DisturbedError as DisturbedError
from parallel_core.system.errors import MeasurementError as MeasurementError
from parallel_core.system.errors import RequestError as RequestError
from parallel_core.traces.profile import profiled_step as profiled_step
from parallel_core.traces.profile.requirements import trace as trace
from parallel_core.training.batches import Settings as Settings
from parallel_core.training.dataset import Dataset as Dataset
from parallel_core.training.dataset import load_fashion_mnist as load_fashion_mnist

# Written by `python -m tests.parallel_core.test_stub`:
def run_async(
    backend: backends.Backend,
    *,
    size: int | None = None,
    steps: int | None = None,
    rounds: int = 5,
    budget: float = 15.0,
    count: int = 2,
) -> Result:
    """Is it faster to wait once, or each time?"""

def run_barriers(
    backend: backends.Backend,
    *,
    size: int | None = None,
    deepest: int = 64,
    rounds: int = 5,
    budget: float = 15.0,
    count: int = 2,
) -> Result:
    """Can Python wait for one result alone?"""

def run_cost_model(
    backend: backends.Backend,
    *,
    largest: int = 524288,
    rounds: int = 5,
    budget: float = 15.0,
    count: int = 2,
) -> Result:
    """Does t1 + n·t2 + t3 predict the time?"""

def run_eager_cpu(
    backend: backends.Backend,
    *,
    size: int | None = None,
    against: Literal["others", "none"] = "others",
    rounds: int = 5,
    budget: float = 15.0,
    count: int = 2,
) -> Result:
    """Can asynchrony be seen on a CPU?"""

def run_parallel(
    backend: backends.Backend,
    *,
    size: int | None = None,
    rounds: int = 5,
    budget: float = 15.0,
    count: int = 2,
) -> Result:
    """Do two devices work at the same time?"""

def run_overlap(
    backend: backends.Backend,
    *,
    size: int | None = None,
    products: int | None = None,
    copies: int | None = None,
    rounds: int = 5,
    budget: float = 15.0,
    count: int = 2,
) -> Result:
    """Do copies hide under computation?"""

def run_independent_ops(
    backend: backends.Backend,
    *,
    size: int | None = None,
    workers_compared: collections.abc.Sequence[int] = (1, 2),
    rounds: int = 5,
    budget: float = 15.0,
    count: int = 2,
) -> Result:
    """Do operations overlap on one device?"""

def run_small_ops(
    backend: backends.Backend,
    *,
    sizes: collections.abc.Sequence[int] | None = None,
    rounds: int = 5,
    budget: float = 15.0,
    count: int = 2,
) -> Result:
    """From which size on do two devices pay?"""

def run_three_way(
    backend: backends.Backend,
    *,
    size: int | None = None,
    products: int | None = None,
    copies: int | None = None,
    rounds: int = 5,
    budget: float = 15.0,
    count: int = 2,
) -> Result:
    """Compute while data travel both ways?"""

def run_dependencies(
    backend: backends.Backend,
    *,
    size: int | None = None,
    rounds: int = 5,
    budget: float = 15.0,
    count: int = 2,
) -> Result:
    """Are tasks across devices right, and faster?"""

def run_graph(
    backend: backends.Backend,
    *,
    batch: int = 1024,
    rounds: int = 5,
    budget: float = 15.0,
    count: int = 2,
) -> Result:
    """What is the graph of a training step?"""

def run_data_parallel(
    backend: backends.Backend,
    *,
    data: parallel_core.training.dataset.Dataset,
    settings: parallel_core.training.batches.Settings = ...,
    compared: int | None = None,
    on_plan: collections.abc.Callable[[parallel_core.training.plan.TrainingPlan], object] = ...,
    on_batch: collections.abc.Callable[[int, int], object] = ...,
    on_epoch: collections.abc.Callable[[parallel_core.training.batches.Epoch], object] = ...,
    checkpoints: parallel_core.training.checkpoints.Checkpointing | None = None,
    count: int = 2,
) -> Result:
    """LeNet on two devices: how fast, same loss?"""

def run_allreduce(
    backend: backends.Backend,
    *,
    algorithms: collections.abc.Sequence[str] | None = None,
    sizes: collections.abc.Sequence[int] | None = None,
    rounds: int = 5,
    budget: float = 15.0,
    count: int = 2,
) -> Result:
    """Which allreduce is the fastest?"""

def run_building_blocks(
    backend: backends.Backend,
    *,
    rounds: int = 5,
    budget: float = 15.0,
    count: int = 2,
) -> Result:
    """What do the chapter's small functions do?"""

def run_batch_scaling(
    backend: backends.Backend,
    *,
    data: parallel_core.training.dataset.Dataset,
    batch_size: int = 256,
    steps: int | None = None,
    seed: int = 0,
    rounds: int = 5,
    budget: float = 15.0,
    count: int = 2,
) -> Result:
    """Do larger batches make devices pay?"""

def run_learning_rates(
    backend: backends.Backend,
    *,
    data: parallel_core.training.dataset.Dataset,
    rates: collections.abc.Sequence[float] = (0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8),
    settings: parallel_core.training.batches.Settings = ...,
    rounds: int = 3,
    budget: float = 180,
    on_batch: collections.abc.Callable[[int, int], object] = ...,
    on_training: collections.abc.Callable[[str], object] = ...,
    count: int = 2,
) -> Result:
    """Does the best rate depend on devices?"""

def run_partitioning(
    backend: backends.Backend,
    *,
    narrow: int = 1,
    wide: int = 4,
    batch: int = 64,
    micro_batches: int = 4,
    rounds: int = 5,
    budget: float = 15.0,
    count: int = 2,
) -> Result:
    """How is a network best divided?"""

def run_evaluate(
    backend: backends.Backend,
    *,
    data: parallel_core.training.dataset.Dataset,
    batch_size: int = 500,
    train_steps: int = 100,
    images: int | None = None,
    seed: int = 0,
    rounds: int = 5,
    budget: float = 15.0,
    count: int = 2,
) -> Result:
    """Is accuracy the same on more devices?"""
