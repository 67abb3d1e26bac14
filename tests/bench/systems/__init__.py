"""File systems over an S3 bucket that the bench measures beside each other: ours, and its peers."""

from bench.systems.base import MountedSystem, Place
from bench.systems.juicefs import JuiceFs
from bench.systems.rclone import Rclone
from bench.systems.s3backer import S3backer
from bench.systems.s3fs import S3fs
from bench.systems.tombolo import Tombolo

PEERS: tuple[type[MountedSystem], ...] = (Rclone, S3fs, JuiceFs, S3backer)

__all__ = ["PEERS", "JuiceFs", "MountedSystem", "Place", "Rclone", "S3backer", "S3fs", "Tombolo"]
