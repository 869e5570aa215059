"""The test that an author of a backend puts into his own tests."""

from typing import ClassVar

from backends.conformance.searching import Limits, search
from backends.conformance.worker import Loader


class Conformance:
    """Holds a backend to the protocol. Abstract: a class of tests inherits from it, and says how to load the backend.

    In a file of tests, for pytest:

        from backends.conformance import Conformance

        class TestMine(Conformance):
            @staticmethod
            def load(devices: int) -> Backend:
                return backends.load("mine", devices)

    `load` runs in another process, which must be able to import the file it stands in.
    """

    load: ClassVar[Loader]
    limits = Limits(programs=100)

    def test_random_programs_give_what_numpy_gives(self) -> None:
        loading = f"{type(self).__name__}.load({{}})"
        for found in search(type(self).load, self.limits):
            raise AssertionError(f"{found.finding.what}, in program {found.number}:\n\n{found.text(loading)}")
