"""Charts of curves: sweeps and learning curves, a panel for each of several, with intervals where
they are known.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from parallel_core.measurement.confidence_intervals import Interval, with_bounds
from parallel_core.measurement.result import Result
from parallel_core.measurement.sweep import Curves, write_point
from parallel_core.report.plots.scales import Axis, Scale, around, linear
from parallel_core.report.plots.svg import SMALL, SWATCH, WIDTH, Picture
from parallel_core.system.formatting import figure

COLOURS = 6
"""The classes `c0`, `c1`, … of the style sheet."""
SHAPES = (
    "M-4 0a4 4 0 1 0 8 0 4 4 0 1 0-8 0z",
    "M-3.6-3.6H3.6V3.6H-3.6z",
    "M0-4.8 4.5 3.4H-4.5z",
    "M0-5 5 0 0 5-5 0z",
    "M0 4.8 4.5-3.4H-4.5z",
    "M-4-1H-1V-4H1V-1H4V1H1V4H-1V1H-4z",
)
"""Of marks: labels of one panel differ by shape too."""
MAX_POINTS = 400
"""Of a curve; a screen shows no more."""
MAX_TICKS = 8
CHANCE = 0.2
"""Of ten classes: an accuracy below is guessing, or hardly better."""
HEIGHT, LEFT, RIGHT = 220.0, 58.0, 18.0
DOTTED = ("2 5", "8 5", "9 4 2 4")
"""Dashes and gaps."""


class Curve(NamedTuple):
    """A line through points, each with its interval, and a mark of a shape on each, if any."""

    label: str
    style: str
    """The class by which the style sheet colours it."""
    points: Sequence[tuple[float, Interval]]
    shape: int | None = None
    dash: str = ""
    thickness: float = 2.0


class Panel(NamedTuple):
    """Curves on two axes, of which y grows upwards."""

    name: str
    x: Axis
    y: Axis
    curves: Sequence[Curve]


@dataclass(frozen=True)
class CurvesChart:
    """Panels beside each other; the legend names each curve once."""

    panels: Sequence[Panel]
    columns: int = 2
    width: float = WIDTH

    def draw(self, picture: Picture) -> None:
        """Draw the legend, and below it the panels."""
        named = {curve.label: curve for panel in self.panels for curve in panel.curves}
        if len(named) > 1:
            picture.legend(
                {label: partial(_draw_sample, picture, curve) for label, curve in named.items()}
            )
        columns = min(self.columns, len(self.panels))
        for first in range(0, len(self.panels), columns):
            top, bottom = picture.bottom, picture.bottom
            for place, panel in enumerate(self.panels[first : first + columns]):
                picture.bottom = top
                _draw_panel(
                    picture, panel, place * picture.width / columns, picture.width / columns
                )
                bottom = max(bottom, picture.bottom)
            picture.bottom = bottom + 8


def _draw_sample(picture: Picture, curve: Curve, x: float, y: float) -> None:
    _draw_line(picture, curve, f"M{x:g} {y:g}h{SWATCH:g}", min(curve.thickness, 4))
    if curve.shape is not None:
        _draw_mark(picture, curve, x + SWATCH / 2, y)


def _draw_panel(picture: Picture, panel: Panel, left: float, width: float) -> None:
    title = ": ".join(filter(None, (panel.name, panel.y.title)))
    picture.text(left, picture.bottom + 10, title, style="bold")
    top, left, room = picture.bottom + 28, left + LEFT, width - LEFT - RIGHT
    picture.bottom = top + HEIGHT

    def at(x: float, y: float) -> tuple[float, float]:
        return left + room * panel.x.scale.place(x), picture.bottom - HEIGHT * panel.y.scale.place(
            y
        )

    grid = picture.add("g")
    picture.grid(panel.x, left, room, top, grid)
    for share, label in panel.y.ticks:
        y = picture.bottom - HEIGHT * share
        picture.add("line", "", "", grid, x1=left, x2=left + room, y1=y, y2=y, style="grid")
        picture.text(left - 6, y, label, text_anchor="end", style="faint", font_size=SMALL)
    for curve in panel.curves:
        known = [
            (x, value, *at(x, value.estimate))
            for x, value in curve.points
            if math.isfinite(value.estimate)
        ]
        path = "L".join(f"{across:.5g} {down:.5g}" for *_, across, down in known)
        _draw_line(picture, curve, f"M{path}" if path else "", curve.thickness)
        for x, value, across, down in known:
            if math.isfinite(value.high):
                ends = {"y1": at(x, value.low)[1], "y2": at(x, value.high)[1]}
                picture.add("line", x1=across, x2=across, **ends, style=f"line {curve.style}")
            if curve.shape is not None:
                said = f"{curve.label}: {with_bounds(value)}" if curve.label else with_bounds(value)
                _draw_mark(
                    picture, curve, across, down, f"{said}; {panel.x.title}: {panel.x.write(x)}"
                )
    picture.x_axis(panel.x, left, room)


def _draw_line(picture: Picture, curve: Curve, path: str, thickness: float) -> None:
    dash = {"stroke_dasharray": curve.dash} if curve.dash else {}
    picture.add("path", d=path, style=f"line {curve.style}", stroke_width=thickness, **dash)


def _draw_mark(picture: Picture, curve: Curve, x: float, y: float, title: str = "") -> None:
    shape = SHAPES[(curve.shape or 0) % len(SHAPES)]
    picture.add(
        "path",
        "",
        title,
        d=shape,
        transform=f"translate({x:.5g} {y:.5g})",
        style=f"full {curve.style}",
    )


def exact(value: float) -> Interval:
    """Return the interval of a single value, which has no bounds."""
    return Interval(value, -math.inf, math.inf)


def sweep_chart(
    curves: Curves, swept: Sequence[float], panels: Mapping[str, Mapping[str, Sequence[Interval]]]
) -> CurvesChart:
    """Draw curves over the points `swept`: for each panel's name and each label the values; all
    have one scale.

    Bounds and predictions are grey, and each is dotted in its own way.
    """
    labels = list(dict.fromkeys(label for panel in panels.values() for label in panel))
    solid = [label for label in labels if label not in curves.dotted]
    # Measured points, for round values of bytes are powers of 2.
    marked = swept[:: 1 + (len(swept) - 1) // MAX_TICKS] if curves.log_x else ()
    x_scale = around(swept) if curves.log_x else linear(swept)
    x = Axis(curves.x_title, x_scale, lambda value: write_point(value, curves.over), marked)
    # The scale holds the estimates and not the intervals, which are wide if there are few
    # processes.
    estimates = [one.estimate for panel in panels.values() for row in panel.values() for one in row]
    finite = [value for value in estimates if math.isfinite(value)]
    positive = [value for value in finite if value > 0]
    y_scale = around(positive) if curves.log_y and positive else linear([0, *finite])
    y = Axis(curves.y_title, y_scale, figure)

    def drawn(label: str, values: Sequence[Interval]) -> Curve:
        points = list(zip(swept, values, strict=False))
        if label in curves.dotted:
            return Curve(
                label, "host", points, None, DOTTED[curves.dotted.index(label) % len(DOTTED)]
            )
        number = solid.index(label)
        return Curve(label or curves.y_title, f"c{number % COLOURS}", points, number)

    return CurvesChart(
        tuple(
            Panel(name, x, y, tuple(drawn(*one) for one in panel.items()))
            for name, panel in panels.items()
        )
    )


def learning_chart(trained: Sequence[tuple[Curve, Result]]) -> CurvesChart:
    """Draw the losses of results batch by batch, and the test accuracy after each epoch, as the
    curves without points.

    Curves that coincide hide each other: each later one is thinner, so that all can be seen.
    """
    losses, accuracies = [], []
    for number, (curve, result) in enumerate(trained):
        loss, accuracy = result.series["loss"], result.series["test_accuracy"]
        steps, stride = len(loss) / len(accuracy), math.ceil(len(loss) / MAX_POINTS)
        curve = curve._replace(thickness=max(1.5, 7 - 1.8 * number) if len(trained) > 1 else 1.5)
        batches = [((at + 1) / steps, exact(loss[at])) for at in range(0, len(loss), stride)]
        losses.append(curve._replace(points=batches))
        accuracies.append(
            curve._replace(points=[*enumerate(map(exact, accuracy), start=1)], shape=number)
        )
    epochs = Axis("epoch", Scale(0, max(len(curve.points) for curve in accuracies)), figure)
    highest = max(value.estimate for curve in losses for _, value in curve.points)
    loss_panel = Panel(
        "loss per image", epochs, Axis("", linear([0, highest]), figure), tuple(losses)
    )
    accuracy_panel = Panel(
        "test accuracy", epochs, Axis("", Scale(0, 1), figure), tuple(accuracies)
    )
    # Accuracies at the level of chance say nothing.
    has_learnt = any(value.estimate >= CHANCE for curve in accuracies for _, value in curve.points)
    return CurvesChart((loss_panel, accuracy_panel) if has_learnt else (loss_panel,))
