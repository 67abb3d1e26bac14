"""The comparison of capabilities: what a peer does better is shown with its reason, and a failure as what it was."""

from typing import Any

from bench.capabilities import FAILED, REASONS, Surveyed, capabilities, workload_sections
from bench.report import table


def finding(probe: str, verdict: str) -> dict[str, Any]:
    return {"probe": probe, "verdict": verdict, "detail": f"of {probe}"}


def test_a_verdict_in_which_a_peer_is_better_has_a_reason() -> None:
    ours = Surveyed("Ours", {"capabilities": [finding("dedup", "yes"), finding("delta", "changed chunks")]})
    peer = Surveyed("Peer", {"capabilities": [finding("dedup", "no"), finding("delta", "delta encoding")]})
    section, behind = capabilities([ours, peer, Surveyed("Lost", None, "does not mount")])
    assert section.words == [
        ["dedup", "yes", "no", FAILED, ""],
        ["delta", "changed chunks", "delta encoding", FAILED, REASONS["delta"]],
    ]
    assert behind.words[0] == ["dedup", "of dedup", "of dedup", ""]
    shown = table(section)
    assert "Lost has no figures: does not mount." in shown
    assert "| | Ours | Peer | Lost | where a peer is better |\n|---|---|---|---|---|\n| dedup |" in shown


def surveyed(name: str, startup_s: float | None, overhead: float) -> Surveyed:
    once = {"startup_s": startup_s, "upload_s": 0.0, "download_s": None, "overhead": overhead}
    return Surveyed(name, {"workloads": [{"number": 4, "rounds": [once, once]}]})


def test_workloads_in_which_a_peer_takes_less_are_gathered_with_reasons() -> None:
    rows, worse = workload_sections([surveyed("Ours", 5.0, 0.4), surveyed("Peer", 0.001, 1.1)])
    assert rows.words == [
        ["workload 4: start-up, ms", "5,000.00", "1.00"],
        ["workload 4: upload, ms", "0.10", "0.10"],
        ["workload 4: download, ms", "not measured", "not measured"],
        ["workload 4: overhead ratio", "0.40", "1.10"],
    ]
    assert worse.words == [["Peer, workload 4: start-up, ms", "5,000.00", "1.00", REASONS["start-up"]]]
    assert len(workload_sections([surveyed("Ours", 0.001, 0.4), surveyed("Peer", 5.0, 1.1)])) == 1
    assert workload_sections([]) == []
