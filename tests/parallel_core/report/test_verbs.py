"""The backends' code in the report, verb by verb."""

from parallel_core.report.verbs import module_of, source_of_verb, verbs


def test_the_verbs_are_the_protocol_s_with_each_backend_s_own_code() -> None:
    found = verbs(["mxnet", "torch", "numpy", "missing"])
    assert [verb.name for verb in found][:3] == ["launch", "wait", "waitall"]
    for verb in found:
        assert list(verb.code) == ["mxnet", "torch", "numpy"]
        assert all("<span" in code for code in verb.code.values()), verb.name


def test_private_functions_stand_below_the_verb_that_calls_them() -> None:
    path = module_of("torch")
    assert path is not None
    source = source_of_verb(path.read_text(), "allreduce")
    names = ("allreduce", "_gather_and_broadcast", "_sum_between_gpus", "_add_into", "_sum_own_shard", "_add_terms")
    places = [source.index(f"def {name}(") for name in names]
    assert places[0] == 0
    assert min(places[1:]) > 0
    assert "def _refuse" not in source
