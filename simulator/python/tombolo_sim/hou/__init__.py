"""What Hou et al. (MSST 2016) found of parallelism, chunks and prefetch, repeated before a modelled store."""
