"""Charts of curves: sweeps and learning curves, in one panel or several, with their intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
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
"""The shapes of marks: the curves of a panel differ by colour and by shape."""
MAX_POINTS = 400
"""The most points of a curve; a screen shows no more."""
MAX_TICKS = 8
CHANCE = 0.2
"""An accuracy below this is guessing among ten classes, or hardly better."""
HEIGHT, LEFT, RIGHT = 220.0, 58.0, 18.0
DOTTED = ("2 5", "8 5", "9 4 2 4")
"""Dashes and gaps of dotted curves."""


class Curve(NamedTuple):
    """A line through points, with an interval and a mark at each."""

    label: str
    style: str
    """The style-sheet class, which decides the colour."""
    points: Sequence[tuple[float, Interval]]
    shape: int | None = None
    """The number of the marks' shape; None without marks."""
    dash: str = ""
    """The dashes and gaps of a dotted line; empty for a solid one."""
    thickness: float = 2.0


class Panel(NamedTuple):
    """Curves on two axes."""

    name: str
    x: Axis
    y: Axis
    curves: Sequence[Curve]


@dataclass(frozen=True)
class CurvesChart:
    """Panels beside each other; the legend names each curve once."""

    panels: Sequence[Panel]
    width: float = WIDTH

    def draw(self, picture: Picture) -> None:
        """Draw the legend, and below it the panels."""
        samples = {}
        for curve in chain.from_iterable(panel.curves for panel in self.panels):
            samples[curve.label] = partial(_draw_sample, picture, curve)
        if len(samples) > 1:
            picture.legend(samples)
        columns = min(2, len(self.panels))
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
    """Draw a piece of a curve's line, and its mark, for the legend."""
    _draw_line(picture, curve, f"M{x:g} {y:g}h{SWATCH:g}", min(curve.thickness, 4))
    if curve.shape is not None:
        _draw_mark(picture, curve, x + SWATCH / 2, y)


def _draw_panel(picture: Picture, panel: Panel, left: float, width: float) -> None:
    """Draw a panel's title, axes, grid and curves below the picture's bottom."""
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
        """Return the position of a value on the x axis, in pixels."""
        return self.left + self.width * self.panel.x.scale.place(value)

    def y(self, value: float) -> float:
        """Return the position of a value on the y axis, in pixels from the top."""
        return self.bottom - HEIGHT * self.panel.y.scale.place(value)


def _draw_curve(picture: Picture, area: _Area, curve: Curve) -> None:
    """Draw a line through the curve's points, their intervals, and a mark on each."""
    x_axis = area.panel.x
    points = [(value, y) for value, y in curve.points if math.isfinite(y.estimate)]
    positions = [f"{area.x(value):.5g} {area.y(y.estimate):.5g}" for value, y in points]
    path = "M" + "L".join(positions) if positions else ""
    _draw_line(picture, curve, path, curve.thickness)
    for value, y in points:
        x = area.x(value)
        if math.isfinite(y.high):
            bounds = {"y1": area.y(y.low), "y2": area.y(y.high)}
            picture.add("line", x1=x, x2=x, **bounds, style=f"line {curve.style}")
        if curve.shape is not None:
            text = with_bounds(y)
            if curve.label:
                text = f"{curve.label}: {text}"
            text = f"{text}; {x_axis.title}: {x_axis.write(value)}"
            _draw_mark(picture, curve, x, area.y(y.estimate), text)


def _draw_line(picture: Picture, curve: Curve, path: str, thickness: float) -> None:
    """Draw a path in a curve's style."""
    dash = {"stroke_dasharray": curve.dash} if curve.dash else {}
    picture.add("path", d=path, style=f"line {curve.style}", stroke_width=thickness, **dash)


def _draw_mark(picture: Picture, curve: Curve, x: float, y: float, title: str = "") -> None:
    """Draw a curve's mark around a position; its title is shown when it is pointed at."""
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
    """Return the chart of curves over the points `swept`.

    `panels` are the values of all curves, by the names of panels and the labels of curves. All
    panels have the same scales. Curves that are bounds or predictions are grey and dotted, each
    with other dashes.
    """
    x = _x_axis_of(curves, swept)
    y = _y_axis_of(curves, panels)
    solid_labels: list[str] = []
    for curves_of_panel in panels.values():
        for label in curves_of_panel:
            if label not in curves.dotted and label not in solid_labels:
                solid_labels.append(label)

    def curve_of(label: str, values: Sequence[Interval]) -> Curve:
        """Return a curve: dotted if it is a bound or a prediction, else in a colour of its own."""
        points = list(zip(swept, values, strict=False))
        if label in curves.dotted:
            dash = DOTTED[curves.dotted.index(label) % len(DOTTED)]
            return Curve(label, "host", points, dash=dash)
        number = solid_labels.index(label)
        colour = f"c{number % COLOURS}"
        return Curve(label or curves.y_title, colour, points, shape=number)

    drawn_panels = []
    for name, curves_of_panel in panels.items():
        drawn_curves = [curve_of(label, values) for label, values in curves_of_panel.items()]
        drawn_panels.append(Panel(name, x, y, tuple(drawn_curves)))
    return CurvesChart(tuple(drawn_panels))


def _x_axis_of(curves: Curves, swept: Sequence[float]) -> Axis:
    """Return the axis of the points of a sweep."""
    write = partial(write_point, over=curves.over)
    if not curves.log_x:
        return Axis(curves.x_title, linear(swept), write)
    # On a logarithmic axis the points themselves are marked: sizes in bytes are powers of 2, which
    # are no round values.
    stride = 1 + (len(swept) - 1) // MAX_TICKS
    return Axis(curves.x_title, around(swept), write, marked=swept[::stride])


def _y_axis_of(curves: Curves, panels: Mapping[str, Mapping[str, Sequence[Interval]]]) -> Axis:
    """Return the axis of the values.

    It holds all estimates, and not the intervals, which are wide if there are few processes.
    """
    estimates: list[float] = []
    for curves_of_panel in panels.values():
        for values in curves_of_panel.values():
            estimates += [value.estimate for value in values if math.isfinite(value.estimate)]
    positive = [estimate for estimate in estimates if estimate > 0]
    if curves.log_y and positive:
        return Axis(curves.y_title, around(positive), figure)
    return Axis(curves.y_title, linear([0, *estimates]), figure)


def learning_chart(trained: Sequence[tuple[Curve, Result]]) -> CurvesChart:
    """Return the chart of losses batch by batch, and of test accuracies after each epoch.

    Each result has a curve without points, which gives its label and style. Curves may coincide, so
    each is thinner than the curve before it, and all can be seen.
    """
    losses, accuracies = [], []
    for number, (curve, result) in enumerate(trained):
        thickness = max(1.5, 7 - 1.8 * number) if len(trained) > 1 else 1.5
        curve = curve._replace(thickness=thickness)
        losses.append(curve._replace(points=_loss_points(result)))
        of_epochs = [exact(accuracy) for accuracy in result.series["test_accuracy"]]
        points = list(enumerate(of_epochs, start=1))
        accuracies.append(curve._replace(points=points, shape=number))
    most_epochs = max(len(curve.points) for curve in accuracies)
    epochs = Axis("epoch", Scale(0, most_epochs), figure)
    loss_axis = Axis("", linear([0, _highest(losses)]), figure)
    panels = [Panel("loss per image", epochs, loss_axis, tuple(losses))]
    # Accuracies at the level of chance are not shown.
    if _highest(accuracies) >= CHANCE:
        shares = Axis("", Scale(0, 1), figure)
        panels.append(Panel("test accuracy", epochs, shares, tuple(accuracies)))
    return CurvesChart(tuple(panels))


def _highest(curves: Sequence[Curve]) -> float:
    """Return the highest estimate of all points of some curves."""
    points = chain.from_iterable(curve.points for curve in curves)
    return max(value.estimate for _, value in points)


def _loss_points(result: Result) -> list[tuple[float, Interval]]:
    """Return (epochs, loss) of at most `MAX_POINTS` batches of a training."""
    losses = result.series["loss"]
    batches_of_epoch = len(losses) / len(result.series["test_accuracy"])
    stride = math.ceil(len(losses) / MAX_POINTS)
    points = []
    for batch in range(0, len(losses), stride):
        epochs = (batch + 1) / batches_of_epoch
        points.append((epochs, exact(losses[batch])))
    return points
