"""`parallel-core diff`: what changed between two saved comparisons, or recordings of a program."""

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from parallel_core.command_line import options
from parallel_core.compare.cell_changes import compare_with_old
from parallel_core.compare.storage import RESULT, read_comparison, result_path
from parallel_core.system import files
from parallel_core.system.errors import DisturbedError, MeasurementError, RequestError
from parallel_core.terminal.changes import show_changes
from parallel_core.terminal.comparison import show_difference
from parallel_core.traces.figures import as_json
from parallel_core.traces.profile.changes import changes_between
from parallel_core.traces.profile.recorded_steps import RecordedSteps, read_recording

SIDES = ("--before", "--after")


class _OfTwoSides(click.Command):
    """A command whose options of two sides take all paths up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat a side's option before each of its paths, as click has it."""
        repeated: list[str] = []
        side = ""
        for word in args:
            if word in SIDES:
                side = word
                continue
            if word.startswith("-"):
                side = ""
            repeated += [side, word] if side else [word]
        return super().parse_args(ctx, repeated)


@click.command(cls=_OfTwoSides)
@click.argument("paths", type=options.PATH, nargs=-1, metavar="BEFORE AFTER")
@click.option(
    "--before",
    type=options.PATH,
    multiple=True,
    metavar="PATH ...",
    help="Several recordings of the program before the change, in place of BEFORE.",
)
@click.option(
    "--after", type=options.PATH, multiple=True, metavar="PATH ...", help="The same after it."
)
@click.option(
    "--fail-if-slower",
    "limit",
    type=options.number(or_zero=True),
    metavar="PERCENT",
    help="Exit with status 1 if a case, or a step, is significantly slower by more than this, or a "
    "case can no longer be measured; with 3 if recordings leave it open.",
)
@options.json_file
def diff(
    paths: tuple[Path, ...],
    before: tuple[Path, ...],
    after: tuple[Path, ...],
    limit: float | None,
    json_path: Path | None,
) -> None:
    """Say what changed between two comparisons, or recordings of a program.

    BEFORE and AFTER are folders (or files) that `parallel-core compare` has written, or traces as
    `parallel-core trace` and `profile` have them, each of one process or a folder of ranks.

    \b
    parallel-core diff runs/profile-1 runs/profile-2
    parallel-core diff --before runs/old-* --after runs/new-*
    """
    if len(paths) == 2 and not before and not after:
        before, after = paths[:1], paths[1:]
    elif paths or not before or not after:
        raise RequestError("give BEFORE and AFTER, or one path or more to --before and to --after")
    all_paths = (*before, *after)
    files.check_outputs(json_path, others=map(result_path, all_paths))
    if not any(map(_is_comparison, all_paths)):
        _diff_recordings(before, after, limit, json_path)
    elif len(all_paths) == 2:
        _diff_comparisons(before[0], after[0], limit, json_path)
    else:
        raise RequestError("--before and --after take one comparison each, or recordings alone")


class _Saved(msgspec.Struct):
    """What tells a saved comparison from a trace."""

    rounds: int


def _is_comparison(path: Path) -> bool:
    """Return whether a folder, or file, is what `compare` wrote."""
    if path.is_dir():
        return (path / RESULT).exists()
    try:
        msgspec.json.decode(path.read_bytes(), type=_Saved)
    except (OSError, ValueError, RecursionError):
        # Why it cannot be read, it says as a recording.
        return False
    return True


def _diff_recordings(
    before: Sequence[Path], after: Sequence[Path], limit: float | None, json_path: Path | None
) -> None:
    """Say what changed between recordings of a program."""
    changes = changes_between(_recordings(before), _recordings(after))
    files.write_json(json_path, as_json(changes))
    show_changes(changes, options.console_beside(json_path))
    if limit is None:
        return
    is_slower = changes.slower_by_more_than(limit)
    if is_slower is None:
        raise DisturbedError(f"whether a step is slower by more than {limit:g} % cannot be said")
    if is_slower:
        raise MeasurementError(f"a step became slower by more than {limit:g} %")


def _recordings(paths: Sequence[Path]) -> list[RecordedSteps]:
    """Read the recordings of a side; raises RequestError for what is none."""
    recordings = []
    for path in paths:
        try:
            recordings.append(read_recording(path))
        except RequestError as error:
            raise RequestError(f"{str(error).rstrip('.')} (nor is it a comparison)") from error
    return recordings


def _diff_comparisons(old: Path, new: Path, limit: float | None, json_path: Path | None) -> None:
    """Say what changed between two comparisons."""
    difference = compare_with_old(read_comparison(old), read_comparison(new))
    if not difference.changes and not difference.broken:
        raise RequestError(f"{old} and {new} have nothing in common: {difference.left_out[0]}")
    files.write_json(json_path, difference.as_json())
    show_difference(difference, options.console_beside(json_path))
    if limit is None:
        return
    if difference.broken:
        raise MeasurementError(f"what was measured in {old} no longer is: {difference.broken[0]}")
    slower = difference.slower_by_more_than(limit)
    if slower:
        worst = max(slower, key=lambda change: change.ratio.low)
        raise MeasurementError(
            f"{len(slower)} of {len(difference.changes)} cases became slower by more than "
            f"{limit:g} %, "
            f"most of all {worst.cell.experiment} on {worst.title}: {worst.case} "
            f"(× {worst.ratio.estimate:.2f})"
        )
