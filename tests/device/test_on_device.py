"""The path of an accelerator without one: its numbers are the CPU's, and no devices are mixed."""

from __future__ import annotations

import pytest

from tests.device.agreement import differences

DEMOS = ("lstm", "gru", "rnn", "s4d", "lru", "mamba", "bert")
RECURRENT = ("gru", "rnn", "s4d", "lru", "mamba")
PROBES = ("stability", "precision", "gradient", "recall")


def agree(child, case, *words, **options) -> dict:
    """What a case finds on the device, when it is what it finds on the CPU."""
    on_cpu, on_device = child.both(case, *words, **options)
    assert differences(on_cpu, on_device) == []
    return on_device


def test_the_device_is_as_strict_as_cuda(child) -> None:
    found = child.run("mixed", "twin")
    assert found["refused"] == [True] * 4
    assert found["numbers"] == [[2.0, 2.0], [2.0, 2.0]]
    assert found["index"] == [1.0, 1.0]


@pytest.mark.parametrize("demo", DEMOS)
def test_the_default_probes_of_every_demo(child, demo) -> None:
    found = agree(child, "scan", f"demo:{demo}", horizon=16, level="quick")
    assert found["subject"]["device"].startswith("twin")
    assert found["errors"] == []


@pytest.mark.parametrize("demo", ["lstm", "s4d", "bert"])
def test_queries_that_feed_tokens(child, demo) -> None:
    queries = ["repeat", "context", "driven"]
    agree(child, "scan", f"demo:{demo}", horizon=16, level="quick", queries=queries)


@pytest.mark.slow
def test_the_long_probes(child) -> None:
    found = agree(child, "scan", "demo:rnn", horizon=16, level="quick", probes=PROBES)
    assert set(PROBES) <= set(found["results"])


@pytest.mark.slow
@pytest.mark.parametrize("probe", ["precision", "recall"])
@pytest.mark.parametrize("demo", ["s4d", "lstm"])
def test_probes_one_by_one(child, demo, probe) -> None:
    agree(child, "scan", f"demo:{demo}", horizon=16, level="quick", probes=[probe])


def test_modes_on_the_cpu_beside_weights_on_the_device(child) -> None:
    found = agree(child, "scan", "demo:mamba", horizon=16, probes=["gradient"])
    layers = found["results"]["gradient"]["layers"]
    assert all(layer["decay"] for layer in layers)


@pytest.mark.slow
@pytest.mark.parametrize("demo", DEMOS)
def test_the_default_probes_at_full_length(child, demo) -> None:
    agree(child, "scan", f"demo:{demo}", horizon=64)


@pytest.mark.slow
@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("demo", DEMOS)
def test_every_probe_of_every_demo(child, demo, probe) -> None:
    agree(child, "scan", f"demo:{demo}", horizon=32, level="quick", probes=[probe])


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_dtypes(child, dtype) -> None:
    agree(child, "scan", "demo:mamba", horizon=16, dtype=dtype)


def test_a_module_that_is_there_already(child) -> None:
    agree(child, "scan_module", horizon=16, level="quick", probes=["spectrum", "gradient"])


@pytest.mark.parametrize("how", ["wrap", "scan"])
def test_a_function_is_fed_where_it_is_said(child, how) -> None:
    agree(child, "scan_function", how)


def test_a_module_is_wrapped_for_the_device(child) -> None:
    found = agree(child, "wrapped_copy")
    assert found["subject"]["device"] == "twin"


@pytest.mark.parametrize("demo", RECURRENT)
def test_retrofit_and_fold(child, demo) -> None:
    found = agree(child, "retrofit_and_fold", f"demo:{demo}")
    assert found["folded"]
    assert found["same"]


def test_the_radius_of_a_retrofit(child) -> None:
    found = agree(child, "retrofit_and_fold", "demo:s4d", radius=True)
    assert found["done"]["layers"][0]["radius_after"] is not None


def test_a_folder_is_written_opened_and_folded(child) -> None:
    found = agree(child, "retrofit_folder")
    assert found["done"]["layers"][0]["moved"]


def test_a_family(child) -> None:
    grid = {"betas": [0.05, 0.1, 0.2], "draws": 3, "ascent": 2, "steps": 12}
    found = agree(child, "family", ["demo:rnn", "demo:gru", "demo:lstm"], **grid)
    assert found["against"]["device"] == "twin"


def test_a_resumed_trainer(child) -> None:
    pytest.importorskip("transformers")
    found = agree(child, "resumed_trainer")
    assert found["raws"]
    assert found["same"]


@pytest.mark.parametrize("device", ["cpu", "twin", "twin:1"])
def test_global_random_state_is_put_back(child, device) -> None:
    found = child.run("random_state", device)
    assert found == {"alive": True, "copies": True, "horizon": True}


@pytest.mark.parametrize("device", ["twin", "twin:1", "auto"])
def test_the_command_line_takes_the_device(child, device) -> None:
    found = child.run("command", device, "scan", "demo:lstm", "--horizon", "16", "--device", device)
    assert found["code"] == 0, found["err"]
    wanted = "twin" if device == "auto" else device
    assert f"float64 on {wanted}" in found["out"]


def test_a_card_that_is_not_there(child) -> None:
    found = child.run("command", "twin", "scan", "demo:lstm", "--device", "twin:2")
    assert found["code"] == 2
    assert "device 'twin:2' is not there; this machine has: twin, cpu" in found["err"]


def test_the_doctor_tells_what_it_can_do(child) -> None:
    found = child.run("command", "twin", "doctor")
    told = " ".join(found["out"].split())
    assert "twin available: twin:0, twin:1; float64, float32, bfloat16, float16" in told
