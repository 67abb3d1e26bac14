# SPDX-License-Identifier: LGPL-3.0-or-later
"""The file service goes away and comes back, loses answers, changes behind ganesha's back; and ganesha restarts."""

import contextlib
import errno
import os
import random
import subprocess
import threading
import time
import unittest

import nfs3
import nfs4
from fake_daemon import ALL_CAPABILITIES, CREATION_ATTRIBUTES, ROOT_INODE
from harness import Ganesha, inside, missing_requirement, serving, wait_until
from nfs4 import BOTH, READ, WRITE


class Restart(unittest.TestCase):
    def setUp(self) -> None:
        reason = missing_requirement()
        if reason:
            raise unittest.SkipTest(reason)
        self.ganesha, self.daemon = self.enterContext(serving(connections=3))

    def connect(self) -> nfs4.Client:
        client = nfs4.Client()
        self.addCleanup(client.close)
        return client

    def mount(self) -> nfs3.Client:
        client = nfs3.Client()
        self.addCleanup(client.close)
        return client

    def test_work_goes_on_over_restarts(self) -> None:
        """Kills under load: nothing fails, nothing is done twice, nothing is lost."""
        seed = random.randrange(2**32)
        print(f"seed {seed}")
        rounds = 12
        failures: list[object] = []
        network = self.ganesha.network()

        def work(worker: int) -> None:
            chosen = random.Random(seed + worker)
            try:
                with inside(os.dup(network)):
                    nfs = nfs3.Client()
                    for number in range(rounds):
                        name = f"/{worker}-{number}"
                        data = chosen.randbytes(chosen.randrange(1, 300_000))
                        nfs.mkdir(name)
                        nfs.write(f"{name}/file", data)
                        nfs.rename(f"{name}/file", f"{name}/renamed")
                        nfs.link(f"{name}/renamed", f"{name}/linked")
                        nfs.unlink(f"{name}/renamed")
                        if nfs.read(f"{name}/linked") != data:
                            failures.append(f"{name} is not what was written")
                    nfs.close()
            except Exception as error:
                failures.append(error)

        workers = [threading.Thread(target=work, args=(worker,)) for worker in range(6)]
        for thread in workers:
            thread.start()
        chosen = random.Random(seed)
        for name in ("CREATE", "MKNOD", "RENAME2", "LINK", "UNLINK", "MKDIR", "WRITE", "SETATTR"):
            self.daemon.lose_answers[name] = 3
        while any(thread.is_alive() for thread in workers):
            time.sleep(chosen.uniform(0.05, 0.3))
            self.daemon.restart(chosen.uniform(0, 0.2))
        for thread in workers:
            thread.join()
        os.close(network)
        self.assertEqual(failures, [])
        self.assertGreater(self.daemon.repeated_done, 0, "no answer was lost")
        for worker in range(6):
            for number in range(rounds):
                self.assertEqual(set(self.daemon.find(f"{worker}-{number}").entries), {b"linked"})

    def test_requests_wait_for_the_daemon(self) -> None:
        nfs = self.connect()
        file = nfs.open("test", "file", BOTH, create=nfs4.unchecked())
        _, _, before = nfs.write(file, 0, b"old")
        self.daemon.stop()
        answered = threading.Event()
        results: list[tuple[int, int, bytes]] = []

        def write() -> None:
            results.append(nfs.write(file, 0, b"new"))
            answered.set()

        threading.Thread(target=write, daemon=True).start()
        self.assertFalse(answered.wait(1.5))
        self.daemon.start()
        self.assertTrue(answered.wait(20))
        self.assertEqual(bytes(self.daemon.find("file").data), b"new")
        # Another start of the daemon is another verifier: the client writes again what it had not committed.
        self.assertNotEqual(results[0][2], before)
        self.assertEqual(nfs.commit(file.handle), results[0][2])

    def test_open_files_are_told_to_a_new_daemon(self) -> None:
        nfs = self.connect()
        file = nfs.open("test", "file", BOTH, create=nfs4.unchecked())
        nfs.write(file, 0, b"data")
        inode = self.daemon.find("file").inode
        self.daemon.restart()
        wait_until(lambda: self.daemon.opens[inode] == 1, "opening again")
        nfs.remove("test", "file")
        self.assertEqual(nfs.read(file, 0, 10), (b"data", True))
        nfs.close_file(file)
        self.assertNotIn(inode, self.daemon.nodes)

    def test_busy_is_delay(self) -> None:
        nfs = self.connect()
        file = nfs.open("test", "file", BOTH, create=nfs4.unchecked())
        self.daemon.busy["WRITE"] = 3
        nfs.write(file, 0, b"data")
        self.assertEqual(self.daemon.busy["WRITE"], 0)
        self.assertEqual(bytes(self.daemon.find("file").data), b"data")

    def test_changes_of_others_are_seen_at_once(self) -> None:
        nfs = self.mount()
        nfs.mkdir("/directory")
        self.assertEqual(self.names(), {"directory"})
        self.daemon.put_file("new", b"12")
        self.daemon.notify_entry(ROOT_INODE, b"new")
        wait_until(lambda: self.names() == {"directory", "new"}, "seeing the new name", 5)
        self.assertEqual(nfs.stat("/new").size, 2)
        node = self.daemon.find("new")
        node.data.extend(b"345")
        node.ctime += 1
        self.daemon.notify_inode(node.inode)
        wait_until(lambda: nfs.stat("/new").size == 5, "seeing the new size", 5)

    def test_changes_missed_while_away_are_seen(self) -> None:
        nfs = self.mount()
        self.daemon.put_file("file", b"1")
        self.assertEqual(nfs.stat("/file").size, 1)
        self.assertEqual(self.names(), {"file"})
        self.daemon.stop()
        self.daemon.find("file").data.extend(b"23")
        self.daemon.put_file("new", b"")
        self.daemon.start()
        wait_until(lambda: nfs.stat("/file").size == 3, "seeing the new size", 10)
        wait_until(lambda: self.names() == {"file", "new"}, "seeing the new name", 5)

    def names(self) -> set[str]:

        done = subprocess.run(["nfs-ls", self.ganesha.url()], capture_output=True, text=True, check=True, timeout=60)
        return {line.split(maxsplit=5)[5] for line in done.stdout.splitlines()}

    def test_share_that_is_gone_is_stale(self) -> None:
        nfs = self.connect()
        file = nfs.open("test", "file", BOTH, create=nfs4.unchecked())
        self.daemon.stop()
        self.daemon.attach_error = errno.ENOENT
        self.daemon.start()
        with self.assertRaises(nfs4.Status) as caught:
            nfs.read(file, 0, 10)
        self.assertEqual(caught.exception.number, nfs4.STALE)

    def test_ganesha_restarts(self) -> None:
        nfs = self.connect()
        file = nfs.open("test", "file", BOTH, create=nfs4.unchecked())
        nfs.write(file, 0, b"data")
        nfs.lock(file, WRITE, 0, 10, b"owner")
        self.assertEqual(len(self.daemon.locks), 1)
        self.ganesha.kill()
        second = Ganesha(self.ganesha.directory, self.daemon.path, connections=3)
        self.addCleanup(second.kill)
        second.start()
        with inside(second.network()):
            nfs = self.connect()
            # Handles are good for ever; locks were those of the former incarnation.
            self.assertEqual(nfs.attributes(file.handle)[1], 4)
            self.assertEqual(self.daemon.locks, [])
            again = nfs.open("test", "file", READ)
            self.assertEqual(again.handle, file.handle)
        names = {client for client, _, _ in self.daemon.attaches}
        self.assertEqual(names, {"nfs:test:7"})
        self.assertEqual(len({incarnation for _, incarnation, _ in self.daemon.attaches}), 2)

    def test_ganesha_ends_while_the_daemon_is_away(self) -> None:
        nfs = self.connect()
        file = nfs.open("test", "file", BOTH, create=nfs4.unchecked())
        self.daemon.stop()
        threading.Thread(target=self.write_ignoring_errors, args=(nfs, file), daemon=True).start()
        time.sleep(0.5)
        try:
            self.ganesha.terminate(30)
            self.assertNotIn("Taking emergency", self.ganesha.log())
        finally:
            self.daemon.start()

    @staticmethod
    def write_ignoring_errors(nfs: nfs4.Client, file: nfs4.Opened) -> None:
        with contextlib.suppress(OSError, AssertionError, nfs4.Status):
            nfs.write(file, 0, b"x")

    def test_ganesha_waits_for_the_daemon_at_start(self) -> None:
        self.ganesha.kill()
        self.daemon.stop()
        second = Ganesha(self.ganesha.directory, self.daemon.path)
        self.addCleanup(second.kill)
        second.start(wait=False)
        time.sleep(2)
        self.assertFalse(second.is_ready())
        self.daemon.start()
        wait_until(second.is_ready, "start of ganesha")
        with inside(second.network()):
            self.connect().handle("test")


class WithoutCreationAttributes(unittest.TestCase):
    def test_attributes_are_set_after_the_creation(self) -> None:
        reason = missing_requirement()
        if reason:
            raise unittest.SkipTest(reason)
        with serving(capabilities=ALL_CAPABILITIES & ~CREATION_ATTRIBUTES) as (_, daemon):
            client = nfs4.Client()
            for _round in range(2):
                client.close_file(client.open("test", "file", BOTH, create=nfs4.exclusive(b"verifier")))
            client.close()
            self.assertEqual((daemon.counts["CREATE"], daemon.counts["SETATTR"]), (1, 1))


class WithoutAclFlags(unittest.TestCase):
    def test_acls_are_asked_for(self) -> None:
        """A daemon that does not tell which objects have ACLs is asked."""
        reason = missing_requirement()
        if reason:
            raise unittest.SkipTest(reason)
        with serving(capabilities=0) as (_, daemon):
            daemon.put_file("file", b"data", 0o600, uid=1000)
            client = nfs4.Client(uid=1000, gid=1000)
            client.close_file(client.open("test", "file", BOTH))
            client.close()
            self.assertGreater(daemon.counts["GETXATTR"], 0)


if __name__ == "__main__":
    unittest.main()
