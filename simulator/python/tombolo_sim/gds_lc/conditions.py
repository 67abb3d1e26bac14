"""Under which conditions the policies are compared: the paper's, as far as it says, and a client's of today."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Condition:
    name: str
    title: str
    location: Mapping[str, Any]
    """What every location has besides its distance, service and prices."""
    netfs: Mapping[str, Any]
    """Parameters of the workload `netfs`."""
    says: str


# TCP takes one round trip (RFC 9293), TLS 1.2 two (RFC 5246); 1.3 is of 2018.
COLD: Mapping[str, Any] = {"handshake_round_trips": 3}
# Average latencies of five runs deviate by 5 to 10 % in all three clouds, without obvious differences (section 5.2.4).
# Yet a run of Netfs lasts six hours in the local cloud and 12 to 16 over the Internet: 730,382 requests of 26 to 33 and
# of 59 to 80 ms (table 1, figures 6e and 15e). So deviations last about as long as runs. Where a factor deviates by 9 %
# and its correlation falls to 1/e in ten hours, which is ours, its mean deviates by 9 % over one hour, by 8 % over six
# and by 7 % over sixteen.
DRIFTING: Mapping[str, Any] = {"drift": {"sigma": 0.09, "correlation_minutes": 600}}
# s3fs copies an object onto itself to set its times, owner and mode. With four copies the mix is 139,128 GETs and
# 591,294 PUTs, in table 1 it is 135,949 and 594,433; with 10,000 names the objects have 702 MiB, in table 1 707.
PRINTED_NETFS: Mapping[str, Any] = {"files": 10_000, "metadata_puts": 4}

PAPER = Condition(
    "paper",
    "the paper's conditions",
    {**COLD, **DRIFTING},
    PRINTED_NETFS,
    "each request makes a connection of its own (three round trips for TCP and TLS 1.2, then slow start); all "
    "latencies of a location drift together, by 9 %, with a correlation that falls to 1/e in ten hours, beside what "
    "each request draws for itself; Netfs has the printed mix of requests and the printed size",
)
STEADY = Condition(
    "steady",
    "a kept connection and a steady network",
    {},
    {},
    "requests find a connection and begin with slow start; each draws its latency for itself; Netfs is filebench's "
    "personality with its own number of files and without copies that set metadata",
)
CONDITIONS = (PAPER, STEADY)
