"""Charts of curves: sweeps and learning curves, in one panel or several.

Intervals are drawn where they are known.
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
"""The number of classes `c0`, `c1`, … in the style sheet."""
SHAPES = (
    "M-4 0a4 4 0 1 0 8 0 4 4 0 1 0-8 0z",
    "M-3.6-3.6H3.6V3.6H-3.6z",
    "M0-4.8 4.5 3.4H-4.5z",
    "M0-5 5 0 0 5-5 0z",
    "M0 4.8 4.5-3.4H-4.5z",
    "M-4-1H-1V-4H1V-1H4V1H1V4H-1V1H-4z",
)
"""The shapes of marks: labels of one panel differ by shape too."""
MAX_POINTS = 400
"""The points of a curve at the most; a screen shows no more."""
MAX_TICKS = 8
CHANCE = 0.2
"""The accuracy, with ten classes, below which guessing does as well, or nearly."""
HEIGHT, LEFT, RIGHT = 220.0, 58.0, 18.0
DOTTED = ("2 5", "8 5", "9 4 2 4")
"""Dashes and gaps of dotted curves."""


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
        curve_of = {curve.label: curve for panel in self.panels for curve in panel.curves}
        if len(curve_of) > 1:
            samples = {
                label: partial(_draw_sample, picture, curve) for label, curve in curve_of.items()
            }
            picture.legend(samples)
        columns = min(self.columns, len(self.panels))
        width = picture.width / columns
        for start in range(0, len(self.panels), columns):
            top = picture.bottom
            bottoms = []
            for column, panel in enumerate(self.panels[start : start + columns]):
                picture.bottom = top
                _draw_panel(picture, panel, column * width, width)
                bottoms.append(picture.bottom)
            picture.bottom = max(bottoms) + 8


def _draw_sample(picture: Picture, curve: Curve, x: float, y: float) -> None:
    _draw_line(picture, curve, f"M{x:g} {y:g}h{SWATCH:g}", min(curve.thickness, 4))
    if curve.shape is not None:
        _draw_mark(picture, curve, x + SWATCH / 2, y)


def _draw_panel(picture: Picture, panel: Panel, left: float, width: float) -> None:
    titles = [title for title in (panel.name, panel.y.title) if title]
    picture.text(left, picture.bottom + 10, ": ".join(titles), style="bold")
    top = picture.bottom + 28
    left, width = left + LEFT, width - LEFT - RIGHT
    picture.bottom = top + HEIGHT
    area = _Area(panel, left, width, picture.bottom)
    grid = picture.add("g")
    picture.grid(panel.x, left, width, top, grid)
    for share, label in panel.y.ticks:
        y = picture.bottom - HEIGHT * share
        picture.add("line", "", "", grid, x1=left, x2=left + width, y1=y, y2=y, style="grid")
        picture.text(left - 6, y, label, text_anchor="end", style="faint", font_size=SMALL)
    for curve in panel.curves:
        _draw_curve(picture, area, curve)
    picture.x_axis(panel.x, left, width)


class _Area(NamedTuple):
    """The part of a picture in which a panel's curves lie."""

    panel: Panel
    left: float
    width: float
    bottom: float

    def x(self, value: float) -> float:
        return self.left + self.width * self.panel.x.scale.place(value)

    def y(self, value: float) -> float:
        return self.bottom - HEIGHT * self.panel.y.scale.place(value)


def _draw_curve(picture: Picture, area: _Area, curve: Curve) -> None:
    """Draw a line through the curve's points, their intervals, and a mark on each."""
    x_axis = area.panel.x
    points = [(x, value) for x, value in curve.points if math.isfinite(value.estimate)]
    ends = [f"{area.x(x):.5g} {area.y(value.estimate):.5g}" for x, value in points]
    path = f"M{'L'.join(ends)}" if ends else ""
    _draw_line(picture, curve, path, curve.thickness)
    for x, value in points:
        across = area.x(x)
        if math.isfinite(value.high):
            bounds = {"y1": area.y(value.low), "y2": area.y(value.high)}
            picture.add("line", x1=across, x2=across, **bounds, style=f"line {curve.style}")
        if curve.shape is not None:
            text = with_bounds(value)
            if curve.label:
                text = f"{curve.label}: {text}"
            text = f"{text}; {x_axis.title}: {x_axis.write(x)}"
            _draw_mark(picture, curve, across, area.y(value.estimate), text)


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
    """Draw curves over the points `swept`: for each panel's name and each label the values.

    All panels have the same scales. Bounds and predictions are grey, and each is dotted in its own
    way.
    """
    x = _x_axis_of(curves, swept)
    y = _y_axis_of(curves, panels)
    labels = dict.fromkeys(label for panel in panels.values() for label in panel)
    solid = [label for label in labels if label not in curves.dotted]

    def drawn(label: str, values: Sequence[Interval]) -> Curve:
        points = list(zip(swept, values, strict=False))
        if label in curves.dotted:
            dash = DOTTED[curves.dotted.index(label) % len(DOTTED)]
            return Curve(label, "host", points, None, dash)
        number = solid.index(label)
        return Curve(label or curves.y_title, f"c{number % COLOURS}", points, number)

    return CurvesChart(
        tuple(
            Panel(name, x, y, tuple(drawn(label, values) for label, values in panel.items()))
            for name, panel in panels.items()
        )
    )


def _x_axis_of(curves: Curves, swept: Sequence[float]) -> Axis:
    """Return the axis of the points that are swept over."""
    write = partial(write_point, over=curves.over)
    if not curves.log_x:
        return Axis(curves.x_title, linear(swept), write)
    # Measured points, for round values of bytes are powers of 2.
    stride = 1 + (len(swept) - 1) // MAX_TICKS
    return Axis(curves.x_title, around(swept), write, swept[::stride])


def _y_axis_of(curves: Curves, panels: Mapping[str, Mapping[str, Sequence[Interval]]]) -> Axis:
    """Return the axis of the values.

    It holds the estimates and not the intervals, which are wide if there are few processes.
    """
    estimates = [
        value.estimate
        for panel in panels.values()
        for values in panel.values()
        for value in values
        if math.isfinite(value.estimate)
    ]
    positive = [estimate for estimate in estimates if estimate > 0]
    if curves.log_y and positive:
        return Axis(curves.y_title, around(positive), figure)
    return Axis(curves.y_title, linear([0, *estimates]), figure)


def learning_chart(trained: Sequence[tuple[Curve, Result]]) -> CurvesChart:
    """Draw the losses of results batch by batch, and the test accuracy after each epoch.

    They are drawn as the curves are, which have no points yet. Curves that coincide hide each
    other: each later one is thinner, so that all can be seen.
    """
    losses, accuracies = [], []
    for number, (curve, result) in enumerate(trained):
        thickness = max(1.5, 7 - 1.8 * number) if len(trained) > 1 else 1.5
        curve = curve._replace(thickness=thickness)
        losses.append(curve._replace(points=_loss_points(result)))
        after_epochs = enumerate(map(exact, result.series["test_accuracy"]), start=1)
        accuracies.append(curve._replace(points=[*after_epochs], shape=number))
    epochs = Axis("epoch", Scale(0, max(len(curve.points) for curve in accuracies)), figure)
    highest_loss = max(value.estimate for curve in losses for _, value in curve.points)
    loss_axis = Axis("", linear([0, highest_loss]), figure)
    panels = [Panel("loss per image", epochs, loss_axis, tuple(losses))]
    best = max(value.estimate for curve in accuracies for _, value in curve.points)
    # Accuracies at the level of chance say nothing.
    if best >= CHANCE:
        shares = Axis("", Scale(0, 1), figure)
        panels.append(Panel("test accuracy", epochs, shares, tuple(accuracies)))
    return CurvesChart(tuple(panels))


def _loss_points(result: Result) -> list[tuple[float, Interval]]:
    """Return the losses of a training over its epochs, no more of them than a screen shows."""
    losses = result.series["loss"]
    batches_of_epoch = len(losses) / len(result.series["test_accuracy"])
    stride = math.ceil(len(losses) / MAX_POINTS)
    return [
        ((batch + 1) / batches_of_epoch, exact(losses[batch]))
        for batch in range(0, len(losses), stride)
    ]
