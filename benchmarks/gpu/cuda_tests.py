"""The tests that need a GPU, on both engines, in processes of their own."""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.gpu.parts import PartResult

ROOT = Path(__file__).parent.parent.parent
FILES = "tests/backends/protocol/test_gpu*.py"


def run_tests(engine: str, seconds: float) -> PartResult:
    """Run them with one engine; a test that fails is a problem, and skipped tests give their reasons."""
    if find_spec("pytest") is None:
        return PartResult(skipped=("pytest is not installed",))
    if seconds <= 0:
        return PartResult(skipped=("no time was left",))
    files = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(FILES))
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ["-q", "-p", "no:cacheprovider", "--continue-on-collection-errors", f"--junit-xml={report}"]
        command = [sys.executable, "-m", "pytest", *options, "--engine", engine, *files]
        # What else is installed there is not to take part.
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return PartResult(problems=(f"stopped: they were not done after {seconds:.3g} s",))
        if not report.exists():
            last = next(iter((done.stderr or done.stdout).strip().splitlines()[-1:]), "no reason given")
            return PartResult(problems=(f"pytest ended with status {done.returncode}: {last}",))
        cases = list(ElementTree.parse(report).iter("testcase"))
    bad = [(case, fault) for case in cases for kind in ("failure", "error") for fault in case.findall(kind)]
    skips = Counter(skip.get("message", "") for case in cases for skip in case.findall("skipped"))
    counts = {
        "passed": len(cases) - len({id(case) for case, _ in bad}) - skips.total(),
        "failed": len(bad),
        "skipped": skips.total(),
    }
    return PartResult(
        notes=(f"{', '.join(f'{count} {what}' for what, count in counts.items())}.",),
        problems=tuple(f"{case.get('name')}: {_reason(fault)}" for case, fault in bad),
        skipped=tuple(f"{count} {'test' if count == 1 else 'tests'}: {reason}" for reason, count in skips.items()),
        parameters=counts,
    )


def _reason(fault: ElementTree.Element) -> str:
    """Return a fault's message in one line; of a file that cannot be imported, why."""
    message = fault.get("message", "")
    if message == "collection failure":
        message = "\n".join(line[1:] for line in (fault.text or "").splitlines()[-1:])
    return next(iter(message.strip().splitlines()), "no reason given")
