"""As little work as a test of each experiment needs: options by name."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from parallel_core.training.batches import Settings
from parallel_core.training.dataset import synthetic

__all__ = ["made_up", "small"]

made_up = partial(synthetic, "a test needs no more", train=300, test=10)

QUICKLY: Mapping[str, Any] = {"rounds": 2, "budget": 600.0}
SMALL: Mapping[str, Mapping[str, Any]] = {
    "parallel": {"size": 64, **QUICKLY},
    "overlap": {"size": 64, "products": 4, "copies": 2, **QUICKLY},
    "independent-ops": {"size": 64, "workers_compared": (1,), **QUICKLY},
    "small-ops": {"sizes": (8, 32), **QUICKLY},
    "three-way": {"size": 64, "products": 4, "copies": 2, **QUICKLY},
    "dependencies": {"size": 8, **QUICKLY},
    "graph": {"batch": 20, **QUICKLY},
    "building-blocks": QUICKLY,
    "allreduce": {"sizes": (40, 4096), **QUICKLY},
    "partitioning": {"wide": 2, "batch": 7, "micro_batches": 2, **QUICKLY},
    "async": {"size": 40, "steps": 30, **QUICKLY},
    "barriers": {"size": 40, "deepest": 3, **QUICKLY},
    "cost-model": {"largest": 40, **QUICKLY},
    "eager-cpu": {"size": 40, "against": "none", **QUICKLY},
    "data-parallel": {
        "data": made_up(train=150, test=20),
        "settings": Settings(2, 32),
        "compared": 2,
    },
    "batch-scaling": {"data": made_up(), "batch_size": 8, "steps": 2, **QUICKLY},
    "learning-rates": {
        "data": made_up(),
        "rates": (0.1, 0.2),
        "settings": Settings(1, 8, limit=4),
        "rounds": 1,
    },
    # Shards of 4 on 3 devices: the last ones are of other lengths, and one of them is empty.
    "evaluate": {
        "data": made_up(train=2000, test=27),
        "batch_size": 4,
        "train_steps": 12,
        "images": 27,
        **QUICKLY,
    },
}


def small(name: str) -> dict[str, Any]:
    """Return an experiment's options."""
    return dict(SMALL[name])
