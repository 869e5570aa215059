"""The categories of Kineto's events, of all years and accelerators, in the words of today.

In 2021 they had other names, and steps stood among the operators. What Kineto's plug-ins add keeps its name; what no
reader here knows is counted, so that nothing of an accelerator is left out in silence.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from backends.profiling.chrome_trace.slices import Slices, recoded

__all__ = [
    "ANNOTATIONS_ON_DEVICE",
    "COPIES",
    "MARKS",
    "MTIA",
    "ON_DEVICE",
    "OPERATORS",
    "STEP",
    "in_words_of_today",
    "is_launch",
    "left_out",
]

OPERATORS, MARKS = "cpu_op", "user_annotation"
STEP = "ProfilerStep#"
ANNOTATIONS_ON_DEVICE = "gpu_user_annotation"
"""From the first to the last operation that an annotation launched, as Kineto reckons it."""
COPIES, MTIA = "gpu_memcpy", "mtia_ccp_events"
ON_DEVICE = {"kernel", COPIES, "gpu_memset", MTIA, "hpu_op"}
"""Work on accelerators: CUDA's, HIP's and XPU's have the same names, Meta's MTIA and Habana's HPU their own."""
WITHOUT_WORK = {
    ANNOTATIONS_ON_DEVICE,
    "Trace",
    "collective_comm",
    "cpu_instant_event",
    "cuda_event",
    "cuda_sync",
    "overhead",
    "python_function",
    "xpu_sync",
}
"""What else Kineto writes of the host, of events and of itself."""
SINCE_2021 = {
    "Kernel": "kernel",
    "Memcpy": COPIES,
    "Memset": "gpu_memset",
    "Operator": OPERATORS,
    "Runtime": "cuda_runtime",
}


def is_launch(category: str) -> bool:
    """Return whether calls of a category launch work: the runtime's and the driver's, of any accelerator."""
    return category.endswith(("_runtime", "_driver"))


def in_words_of_today(slices: Slices) -> Slices:
    """Return the same slices with the categories of today; steps are marks, also if they stand among operators."""
    categories, category_of = recoded(slices.categories, slices.category_of, lambda name: SINCE_2021.get(name, name))
    if OPERATORS in categories:
        is_step = slices.has_name({name for name in slices.names if name.startswith(STEP)})
        is_step &= category_of == categories.index(OPERATORS)
        if is_step.any():
            categories = (*categories, MARKS)
            category_of = np.where(is_step, len(categories) - 1, category_of)
    return replace(slices, categories=categories, category_of=category_of)


def left_out(slices: Slices) -> Iterator[str]:
    """Yield a note for each category that no reader here knows."""
    for category, count in slices.counts().items():
        if category and category not in ON_DEVICE | WITHOUT_WORK | {OPERATORS, MARKS} and not is_launch(category):
            events = f"{count:,} events" if count > 1 else "1 event"
            yield f"{events} of the category {category!r}, which is not known here, left out."
