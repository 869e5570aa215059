"""Fashion-MNIST for training that is timed and not judged."""

from dataclasses import replace

from parallel_core.training.dataset import Dataset, load_fashion_mnist

__all__ = ["few_tests"]

TESTS = 8


def few_tests() -> Dataset:
    """Load it with a handful of test images: what follows an epoch would take as long as the epoch."""
    data = load_fashion_mnist()
    return replace(data, test_images=data.test_images[:TESTS], test_labels=data.test_labels[:TESTS])
