"""One replay of a trace's keys, in a process of its own: `python -m bench.key_replay CONTENDER FILE POLICY KEYS`.

Prints what it took, from opening the file to the miss ratio, and the miss ratio. Both read the same file, in
libCacheSim's `oracleGeneral`, uncompressed, and take a request for something as one for a unit of one size.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

HASH_POWER = 20
"""libCacheSim's table begins with 2^20 places instead of 2^24: enough for all caches here, and less to clear."""


LIBCACHESIM_POLICIES = {
    "lru": "LRU",
    "arc": "ARC",
    "2q": "TwoQ",
    "s3-fifo": "S3FIFO",
    "sieve": "Sieve",
    "lirs": "LIRS",
    "w-tinylfu": "WTinyLFU",
    "min": "Belady",
}
"""Its classes by our names. Belady's needs a trace that says when each key comes next."""


def ours(file: Path, policy: str, keys: int) -> Callable[[], float]:
    from tombolo_sim import engine

    trace = {"path": str(file), "format": "oracle-general", "view": "ids"}
    job = {"trace": trace, "runs": [{"policy": policy, "capacity": {"keys": keys}}]}
    return lambda: float(engine.keys(job)["runs"][0]["miss_ratio"])


def libcachesim(file: Path, policy: str, keys: int) -> Callable[[], float]:
    import libcachesim as other

    cache = getattr(other, LIBCACHESIM_POLICIES[policy])

    def replay() -> float:
        settings = other.ReaderInitParam()
        settings.ignore_obj_size = True
        reader = other.TraceReader(str(file), other.TraceType.ORACLE_GENERAL_TRACE, settings)
        miss_ratio, _ = cache(keys, hashpower=HASH_POWER).process_trace(reader)
        return float(miss_ratio)

    return replay


CONTENDERS = {"ours": ours, "libcachesim": libcachesim}


def main(arguments: list[str]) -> None:
    contender, file, policy, keys = arguments
    replay = CONTENDERS[contender](Path(file), policy, int(keys))
    processor, begun = time.process_time(), time.monotonic()
    miss_ratio = replay()
    taken = {"processor_s": time.process_time() - processor, "wall_s": time.monotonic() - begun}
    print(json.dumps(taken | {"miss_ratio": miss_ratio}))


if __name__ == "__main__":
    main(sys.argv[1:])
