"""Errors for numbers that are NaN or infinite: they name epoch, step and device."""

from collections.abc import Sequence

from backends import Device
from parallel_core.errors import MeasurementError

__all__ = ["GradientsAreNotFiniteError", "LossIsNotFiniteError", "NotFiniteError"]

UNCHANGED = "the parameters are those before the step"


class NotFiniteError(MeasurementError):
    """A step gave numbers that are NaN or infinite, on `devices` of this process as far as is known."""

    def __init__(self, message: str, epoch: int, step: int, devices: Sequence[Device]) -> None:
        super().__init__(message)
        self.epoch, self.step, self.devices = epoch, step, tuple(devices)


class LossIsNotFiniteError(NotFiniteError):
    """A device's loss is NaN or infinite. `updated`: the gradients were finite nevertheless, and were applied."""

    def __init__(self, epoch: int, step: int, device: Device, loss: float, updated: bool = False) -> None:
        left = "" if updated else f" ({UNCHANGED})"
        super().__init__(
            f"the loss is {loss} on {device} in epoch {epoch}, step {step}{left}: lower the learning rate (--lr)",
            epoch,
            step,
            (device,),
        )


class GradientsAreNotFiniteError(NotFiniteError):
    """Losses are finite here, and the gradients' sum over all devices is not.

    `devices` are those whose own gradients are not finite when they are computed again; none if the cause lies in
    another process, in the sum, or did not recur.
    """

    def __init__(self, epoch: int, step: int, devices: Sequence[Device]) -> None:
        subject = f"the gradients on {', '.join(map(str, devices))} are" if devices else "the sum of the gradients is"
        source = "" if devices else "; computed again, those of each device here are finite"
        super().__init__(
            f"{subject} not finite in epoch {epoch}, step {step} ({UNCHANGED}{source}): lower the learning rate (--lr)",
            epoch,
            step,
            devices,
        )
