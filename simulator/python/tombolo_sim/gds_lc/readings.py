"""Why a claim of the paper may not hold here: what is added to a verdict when it does not."""

from collections.abc import Mapping
from dataclasses import replace

from tombolo_sim.report.checks.base import Check, Verdict

_EGRESS = (
    "where bytes out are charged, a policy that evicts large objects to keep many small ones pays in bytes what it saves in "
    "requests; weighing by latency alone does not see it, and LRU does not do it"
)
_FLAT = (
    "a small object's latency is nearly the same whatever its size, so size decides and the factor moves results by "
    "less than a per cent; fluctuation is drawn independently for each transfer here, while the paper measured one network "
    "at different times of day"
)
_ONE_POINT = (
    "the gap has the printed sign, but in the stand-in most requests hit and few evictions are of dirty objects"
)

READINGS: Mapping[str, str] = {
    "Internet cloud: LRU has the highest bill": _EGRESS,
    "Heterogeneous cloud: LRU has the highest bill": _EGRESS,
    "Internet cloud: LRU has the highest latency": "see there: the large objects that others evict take several round trips",
    "Heterogeneous cloud: LRU has the highest latency": "the large objects that others evict take several round trips",
    "lower by half of the printed 21 % or more": _ONE_POINT,
    "GDS(price) has a lower latency than GDS(latency)": "the two order objects almost alike where transfer is free",
    "even LRU has a lower latency than GDS(latency)": (
        "the paper lays it to latencies measured before an object changed its size; here too they are stale, but small "
        "objects take nearly equally long, and sizes are always known"
    ),
    "LRU has fewer uploads on demand than ARC": (
        "ARC's victims here are objects that were used once and have been uploaded already; what is written twice goes to "
        "its second list and is kept"
    ),
    "GDS(latency), 10 %: 10 round trips is the best factor": _FLAT,
    "GDS(latency), 10 %: 1 round trips is the best factor": _FLAT,
    "GDS(latency), 10 %: 100 round trips are worse": _FLAT,
    "GDS(latency), 10 %: hit ratios rise with the factor": _FLAT,
}


def with_reading(check: Check) -> Check:
    """The check, with why it may have failed where it has."""
    if check.verdict is not Verdict.FAILS:
        return check
    found = next((reading for part, reading in READINGS.items() if part in check.claim), None)
    return replace(check, reason=f"{check.reason}: {found}") if found else check
