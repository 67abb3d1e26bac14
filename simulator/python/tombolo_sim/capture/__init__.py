"""Traces of what is asked of a device, on an ordinary Linux.

*A block device*, by the kernel's tracepoint `block_bio_queue` in a tracefs instance of our own: it needs root and
nothing else (no blktrace, whose relay files are refused in many containers, no kprobes). *An NBD export*, by a proxy:
nbdkit with its log filter. A FUSE mount or a network mount has no device beneath it: the gateway writes such traces
itself.

What is written is the text format `time_us op block count [contents]`. Contents are not seen, but zeroes asked for as
such.
"""

from tombolo_sim.capture.device import record_device
from tombolo_sim.capture.nbd import record_nbd
from tombolo_sim.capture.writer import CaptureError

__all__ = ["CaptureError", "record_device", "record_nbd"]
