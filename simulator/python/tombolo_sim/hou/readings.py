"""Why a claim may not hold here: our reading, added to a verdict where it does not."""

from collections.abc import Mapping

_RUNS = (
    "the stand-in reads shorter runs (400 requests of 16 KiB on average) than the paper's trace may have, so the "
    "rest of a large chunk is read less often"
)

READINGS: Mapping[str, str] = {
    "4 MB is the smallest within 5 %": (
        "with 0.37 s besides transfer, as 64 KB take in the paper, 4 MB are within 6 % of 16 MB; the figure is read "
        "by eye there"
    ),
    "4 MB has the lowest": _RUNS,
    "With prefetch, 1 MB has the lowest": (
        "64 KB gain more than in the paper, where the client's processor is busy with many small requests; here it "
        "costs nothing"
    ),
    "At 4 MB prefetch makes writes no faster": (
        "the paper lays its loss to downloads that compete; here a client waits 10 ms between requests, and what it "
        "does not wait for is fetched meanwhile"
    ),
    "product's controller: at least 85%": (
        "what was refused is not tried again for a while, and for longer where refusals come soon after one another; "
        "with some seeds that keeps it a quarter below what the store would take"
    ),
}
