"""On how many of the loaded devices an experiment runs that asks how something scales."""

__all__ = ["device_counts", "in_words"]


def device_counts(loaded: int) -> tuple[int, ...]:
    """Return 1, 2, 4, … up to the number of loaded devices, and that number itself."""
    doubled = (2**power for power in range(loaded.bit_length()))
    return tuple(sorted({*doubled, loaded}))


def in_words(count: int) -> str:
    """Write a number of devices."""
    return "1 device" if count == 1 else f"{count} devices"
