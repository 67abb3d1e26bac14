"""Drives real processes for the end-to-end tests: the gateway, S3 servers, tgtd, and clients of their protocols.

Owns process lifetimes, ports and folders. Knows the gateway only from outside: its command line, its
sockets, its files. Every wait has a limit, and only processes started here are ever signalled, by their id.
"""
