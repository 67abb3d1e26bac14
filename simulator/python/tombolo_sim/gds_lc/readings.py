"""Why a claim of the paper may not hold here: our reading, added to a verdict where it does not. Numbers in it are of
runs under the paper's conditions in which one thing was changed."""

from collections.abc import Mapping

_EGRESS = (
    "it is the charge for bytes out. Without it LRU has the highest bill in every cell; with it GDS(latency), and what "
    "keeps small objects like it, pays in bytes what it saves in GETs"
)
_PRICE_REGION = (
    "it is the price region, two thirds of the cache. Over the Internet a GET costs as much as 5 KB of transfer; what "
    "is much larger costs the same per byte, whatever its size, and is kept by its use alone. Without the charge for "
    "bytes out GDS-LCF has the lowest latency and the lowest bill in every cell; other factors of normalisation move "
    "its latency by 1.5 % at the most"
)
_NOISE = (
    "in one data centre a request's latency fluctuates more than objects differ, and noise is what a coarse factor "
    "hides. Without fluctuation 100 round trips are worse than 10, as printed, by up to 1.2 %; with twice as much of "
    "it, or a drift of 30 % within five minutes or an hour, they are better, by up to 1.3 %"
)
_FLAT = (
    "the factors' latencies lie within 1 % of each other. With a drift of 30 % within five minutes 100 round trips are "
    "the worst, as printed, by 0.2 %"
)

READINGS: Mapping[str, str] = {
    "Internet cloud: LRU has the highest bill": _EGRESS,
    "Heterogeneous cloud: LRU has the highest bill": _EGRESS,
    "Internet cloud: GDS-LCF has the lowest": _PRICE_REGION,
    "Heterogeneous cloud: GDS-LCF has the lowest": _PRICE_REGION,
    "Heterogeneous cloud: LRU has the highest latency": (
        "GDS(price) keeps the objects of the location with the dearer transfer, which is the nearer one, and fetches "
        "the distant ones again. With one price at both LRU has the highest latency in every cell"
    ),
    "lower by half of the printed 21 % or more": (
        "7 ms less for each of 730,382 requests by 1,300 uploads fewer, as printed, are 3.9 s an upload; here one "
        "takes 0.04 s. With PUTs of 1 s the change is -20 %, with transfers at 1 MiB/s -22 %"
    ),
    "even LRU has a lower latency than GDS(latency)": (
        "the paper lays it to latencies measured before an object changed its size. Transfers at 20 to 25 MiB/s add "
        "little to a latency, so that little is misjudged; at 1 MiB/s LRU's is lower by 14 %"
    ),
    "LRU has fewer uploads on demand than ARC": (
        "every dirty object of the stand-in has been used twice (created and filled, or read and appended to), which "
        "takes it to ARC's second list, where it is kept"
    ),
    "GDS(price), GDS-LC and GDS-LCF upload about equally much": (
        "telling clean from dirty saves PUTs here in the local cloud, too, as it does in the paper over the Internet"
    ),
    "regions of 1:2 give a lower latency": (
        "the larger the performance region the better, with no best in between, for what the price region costs where "
        "bytes out are charged. Without that charge the ratios' latencies lie within 1 %"
    ),
    "the regions' sizes matter little": (
        "with a charge for bytes out a larger performance region helps where sizes have a long tail; without it the "
        "ratios' latencies lie within 2 %, as printed"
    ),
    "GDS-LCF's latency is close to GDSF(latency)'s": _PRICE_REGION,
    "GDS-LCF's latency is lower than both GDSF's": _PRICE_REGION,
    "GDS-LC's latency is comparable to GDS-L's": _PRICE_REGION,
    "GDS-LCF's latency is comparable to GDS-LF's": _PRICE_REGION,
    "Local cloud, GDS(latency), 10 %": _NOISE,
    "Internet cloud, GDS(latency), 10 %": _FLAT,
}
