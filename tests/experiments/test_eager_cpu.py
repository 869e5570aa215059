"""Eager on a CPU: contrasts are measured elsewhere, one that cannot run is a note, and the sentences follow."""

from collections.abc import Mapping

import pytest

import parallel_core
from backends import Backend
from parallel_core import MeasurementError, RequestError, Result
from parallel_core.experiments import eager_cpu
from parallel_core.result import Case
from tests.comparison.made_up import result as made_up

KNOWN = ("mxnet", "numpy", "torch")
