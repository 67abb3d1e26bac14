"""Claims of the other papers. None of them is decided by replaying block traces through the gateway."""

from tombolo_sim.report.checks.base import Check, particular

_GDS = "objects of their own sizes and prices, not blocks; see `tombolo-sim report gds-lc`"
_STOUT = "the replay has no store whose latency grows with its load, which batching reacts to"
_HOU = "it measures a provider's own service at given request sizes and parallelism; the replay takes these as input"
_BOCCHI = "it is a black-box measurement of clients of file services"

_CLAIMS = (
    (_STOUT, "Stout, table 1", "Batching gains at 10 and 20 ms", "+18 %, +55 %"),
    (_STOUT, "Stout, figure 8", "Latency under light load against a fixed 160 ms", "4.2 against 144 ms"),
    (_STOUT, "Stout, figure 8", "Largest load against a fixed 20 ms", "41k against 12k"),
    (_STOUT, "Stout, figure 10", "Cost of adapting at 24k and 26.4k", "80 to 94, 75 to 100 ms"),
    (_STOUT, "Stout, figure 11", "Load from 12k to 6k, and to 18k", "50 to 5 ms, 50 to 80 ms"),
    (_STOUT, "Stout, section 5.5, figure 14", "Fairness; recovery from a hiccup", "Jain .97; > 30 s after 2696 ms"),
    (_GDS, "GDS-LC, figure 6e", "Latency against GDS(latency), Netfs, local, 5 %", "-21 %"),
    (_GDS, "GDS-LC, figure 8a", "Uploads on demand, 10 %", "-46 %"),
    (_GDS, "GDS-LC, figures 6, 9, 11", "LRU is worst, GDS-LCF best or equal in most cases", "ordering"),
    (_GDS, "GDS-LC, figure 15e", "Regions perf:price of 1:3, 1:2, 2:1", "74, 59, 80 ms"),
    (_GDS, "GDS-LC, figures 16-18", "Best k", "10 when local, 1 else; 100 hurts"),
    (_GDS, "GDS-LC, figure 7b", "Missed objects above 20 KB, Clark, 10 %", "37 % against LRU's 18 %"),
    (_HOU, "Hou, figure 13", "Read and write latency, chunks of 64 KB against 4 MB", "-47.3 %, -40.4 %"),
    (_HOU, "Hou, figure 14", "Hit ratios of the same", "77.8 to 98.4 %, 88.9 to 99.4 %"),
    (_HOU, "Hou, table VI", "Gain of prefetch by chunk size", "70.4/31.1, 56.9/24.6, 22.6/-1.2 %"),
    (_HOU, "Hou, figure 1", "Gain of parallel requests of 1 KB", "27 and 21 times"),
    (_HOU, "Hou, figure 6", "4 MB split into 16 of 256 KB", "44.2 against 14.5 MB/s"),
    (_HOU, "Hou, figure 2", "Upload of 16 MB, parallelism 4 to 64", "1.1 to 18.3 s"),
    (_HOU, "Hou, figure 10", "Upload of 4 MB at round trips of .28 and 176 ms", "-10 %"),
    (_BOCCHI, "Bocchi, table V", "Small files; overhead ratio", "64 s against 406; .93-2.13"),
)


def elsewhere() -> list[Check]:
    return [particular(claim, source, printed, reason) for reason, source, claim, printed in _CLAIMS]
