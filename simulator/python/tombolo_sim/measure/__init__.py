"""What a store takes, measured as Hou et al. (MSST 2016) do, and whether it is fit to be a gateway's.

Everything that is put lies below a random prefix of the measurement's own, is counted and priced before the first
request, and is removed afterwards. The table that comes of it is the one that replays and the gateway read
(`cloud_driver/src/latency_table.rs`).
"""
