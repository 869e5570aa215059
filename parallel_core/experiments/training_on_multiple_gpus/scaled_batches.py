"""The two ways to train on more devices: divide the same batch further, or give every device the whole of it."""

__all__ = ["FIXED", "SCALED", "case_name", "counted_devices", "device_counts", "plans"]

FIXED, SCALED = "fixed batch", "scaled batch"


def plans(batch_size: int, loaded: int) -> dict[tuple[str, int], int]:
    """Return the global batch for each kind of batch and number of devices; on one device there is one kind."""
    return {
        (kind, count): batch_size * (count if kind == SCALED else 1)
        for count in device_counts(loaded)
        for kind in ((FIXED, SCALED) if count > 1 else (FIXED,))
    }


def device_counts(loaded: int) -> tuple[int, ...]:
    """Return 1, 2, 4, … up to the number of loaded devices, and that number itself."""
    return tuple(sorted({*(2**power for power in range(loaded.bit_length())), loaded}))


def counted_devices(count: int) -> str:
    """Write a number of devices."""
    return "1 device" if count == 1 else f"{count} devices"


def case_name(kind: str, count: int, loaded: int = 0) -> str:
    """Name a kind of batch on some devices; all that are loaded have the same name however many they are."""
    if count == 1:
        return counted_devices(1)
    return f"{'all devices' if count == loaded else counted_devices(count)}, {kind}"
