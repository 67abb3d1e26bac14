"""What the Tombolo paper prints (MSST'16), by table. Figures 4, 5 and 8 to 13 are pictures; the few numbers that the
text gives of them stand with the claims."""

from tombolo_sim import _engine

ALGORITHMS = ("lru_seq", "lru_amp", "sarc_seq", "sarc_amp", "lru_graph", "sarc_graph")

TABLE_1 = {
    "Corp": {"reads": 19_876_155, "writes": 3_968_452, "read_gb": 203.8, "written_gb": 119.9, "growth_gb": 82.3},
    "Eng": {"reads": 23_818_465, "writes": 4_416_026, "read_gb": 192.1, "written_gb": 87.2, "growth_gb": 63.7},
}
"""Over 42 and 38 days, by 5,261 and 2,654 clients."""

TABLE_3 = {
    "lru_seq": ("LRU", "fixed size"),
    "lru_amp": ("LRU", "AMP"),
    "lru_graph": ("LRU", "history + AMP"),
    "sarc_seq": ("SARC", "fixed size"),
    "sarc_amp": ("SARC", "AMP"),
    "sarc_graph": ("SARC", "history + AMP"),
}

PERCENTILES = (0.90, 0.95, 0.99)

TABLE_4 = {
    "lru_seq": (935, 1585, 2196),
    "lru_amp": (834, 1475, 2165),
    "sarc_seq": (745, 1335, 2115),
    "sarc_amp": (705, 1255, 2095),
    "lru_graph": (644, 1156, 2075),
    "sarc_graph": (33, 885, 1976),
    "cloud": (2105, 2322, 2865),
}
"""p90, p95, p99 in ms: S3, Corp, 90 GB."""

TABLE_5 = {
    "lru_seq": (435, 485, 564),
    "lru_amp": (414, 475, 556),
    "sarc_seq": (405, 475, 545),
    "sarc_amp": (386, 465, 534),
    "lru_graph": (40, 465, 534),
    "sarc_graph": (33, 414, 515),
    "cloud": (539, 593, 805),
}
"""The same over CloudFront."""

TABLE_6 = {"Corp": (0.841, 0.096, 0.937), "Eng": (1.017, 0.013, 1.030)}
"""Storage, operation, total in $/GB over three years: SARC_GRAPH, 90 GB, CloudFront."""

TABLE_7 = {
    "lru_seq": (2.4, 2.9, 3.4),
    "lru_amp": (2.4, 2.9, 3.4),
    "sarc_seq": (2.8, 3.8, 4.7),
    "sarc_amp": (2.8, 3.8, 4.7),
    "lru_graph": (6.3, 6.8, 7.1),
    "sarc_graph": (4.3, 5.1, 6.0),
}
"""Metadata in GB at caches of 10, 20 and 30 %, Corp."""

STORAGE_MODEL = {
    "Corp": {"initial_gb": 3000.0, "growth_gb_per_month": 58.77},
    "Eng": {"initial_gb": 19000.0, "growth_gb_per_month": 50.33},
}
UNIT_PRICE_PRINTED = 0.00295
UNIT_PRICE_OF_TOTAL = 0.0295
MONTHS = 36


def storage_usd_per_gb(initial_gb: float, growth_gb_per_month: float, unit_price: float) -> float:
    """Formulas (4) to (6), which are the engine's."""
    return _engine.storage_usd_per_gib(initial_gb, growth_gb_per_month, MONTHS, unit_price)
