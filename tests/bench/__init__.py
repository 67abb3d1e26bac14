"""Side-by-side measurements: the gateway against tgtd's own file store on the same disk, and against plain S3 requests.

Absolute figures say more about the machine than about the gateway, so every figure here is a ratio of two
medians that were measured in alternation.
"""
