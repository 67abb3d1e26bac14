# SPDX-License-Identifier: GPL-2.0-only
"""The server goes away and comes back while initiators are at work."""

import os
import random
import shutil
import socket
import subprocess
import threading
import time
import unittest

import harness
import initiator
from initiator import BUSY, CHECK_CONDITION, GOOD
from test_commands import LUN_BYTES, MEDIUM_ERROR, MISSING, SEED, TargetTest

UNIT_ATTENTION, ABORTED_COMMAND = 0x06, 0x0B
HOLD_S = 20


class Restart(TargetTest):
    def test_load_survives_kills(self):
        """Random writes and reads on two units while the server is killed six times:
        no command fails, and at the end the data is what was written."""
        stop = threading.Event()
        failures = []
        models = {}

        def work(lun):
            choice = random.Random(SEED * 100 + lun)
            model = models[lun] = bytearray(256 * 4096)
            try:
                with initiator.Initiator(self.tgtd.port, harness.IQN, lun) as unit:
                    while not stop.is_set():
                        slots = choice.sample(range(256), 16)
                        writes = {slot: choice.randbytes(4096) for slot in slots[:12]}
                        tags = [unit.send(initiator.write16(slot * 8, 8), data) for slot, data in writes.items()]
                        reads = {slot: unit.send(initiator.read16(slot * 8, 8), data_in_bytes=4096) for slot in slots[12:]}
                        for tag in tags:
                            reply = unit.wait(tag)
                            if reply is None or reply.status != GOOD:
                                failures.append(f"write: {reply}")
                        for slot, data in writes.items():
                            model[slot * 4096 : (slot + 1) * 4096] = data
                        for slot, tag in reads.items():
                            reply = unit.wait(tag)
                            if reply is None or reply.status != GOOD:
                                failures.append(f"read: {reply}")
                            elif reply.data != model[slot * 4096 : (slot + 1) * 4096]:
                                failures.append(f"slot {slot} of unit {lun} is wrong")
            except Exception as error:  # reported by the main thread
                failures.append(repr(error))

        threads = [threading.Thread(target=work, args=(lun,)) for lun in (1, 2)]
        for thread in threads:
            thread.start()
        try:
            for pause_s in (0.0, 0.1, 0.5, 1.0, 0.0, 0.2):
                time.sleep(0.4)
                self.server.kill()
                time.sleep(pause_s)
                self.server.start()
            time.sleep(0.5)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(failures, [], f"SEED={SEED}")
        self.assertGreaterEqual(self.tgtd.log().count("NBD server is back"), 6)
        for path, lun in ((self.disk, 1), (self.other, 2)):
            self.assertEqual(path.read_bytes()[: len(models[lun])], models[lun], f"SEED={SEED} unit {lun}")

    def test_commands_sent_without_a_server_are_held_in_order(self):
        unit = self.connect()
        self.server.kill()
        tags = [unit.send(initiator.write16(0, 8), bytes([i]) * 4096) for i in range(50)]
        tags.append(unit.send(initiator.SYNCHRONIZE_CACHE))
        self.assertIsNone(unit.wait(tags[0], 0.5))
        # Several threads would carry out commands that are under way together in any order.
        self.server.arguments.append("--threads=1")
        self.server.start()
        for tag in tags:
            self.assert_good(unit.wait(tag))
        self.assertEqual(unit.read(0, 8).data, bytes([49]) * 4096)

    def test_more_commands_than_the_limit_are_told_so(self):
        """One session is limited to 128 by tgtd, so this takes ten of them."""
        units = [self.connect() for _ in range(10)]
        self.server.kill()
        time.sleep(0.2)
        tags = [(unit, unit.send(initiator.read16(0, 1), data_in_bytes=512)) for unit in units for _ in range(125)]
        full = [unit.wait(tag, 0.5 if i == len(tags) - 1 else 0.001) for i, (unit, tag) in enumerate(tags)]
        full = [reply for reply in full if reply]
        self.server.start()
        self.assertTrue(full)
        self.assertEqual({reply.status for reply in full}, {initiator.TASK_SET_FULL})

    def test_long_outage_ends_in_busy(self):
        unit, other = self.connect(1), self.connect(2)
        started = time.monotonic()
        self.server.kill()
        early = unit.send(initiator.write16(0, 8), b"e" * 4096)
        time.sleep(2)
        late = unit.send(initiator.read16(0, 8), data_in_bytes=4096)
        self.assertEqual(unit.wait(early, HOLD_S + 10).status, BUSY)
        self.assertGreaterEqual(time.monotonic() - started, HOLD_S - 1)
        self.assertIsNone(unit.wait(late, 0.1))
        self.assertEqual(unit.wait(late, HOLD_S + 10).status, BUSY)
        self.server.start()
        self.assert_good(unit.read(0, 8))
        self.assert_good(other.read(0, 8))

    def test_abort_without_a_server_does_not_wait_for_it(self):
        unit = self.connect()
        self.server.kill()
        tag = unit.send(initiator.write16(0, 8), b"a" * 4096)
        time.sleep(0.3)
        task = unit.send_task_management(1, tag)
        self.assertIsNotNone(unit.wait_task_management(task, 5))
        self.server.start()
        self.assert_good(unit.read(0, 8))

    def test_unit_is_deleted_while_there_is_no_server(self):
        self.connect().close()
        self.server.kill()
        time.sleep(0.3)
        self.tgtd.remove_lun(2)
        self.server.start()
        self.assert_good(self.connect(1).read(0, 8))

    def test_open_without_a_server_fails_at_once(self):
        self.server.kill()
        started = time.monotonic()
        self.assertNotEqual(self.tgtd.add_lun(3, self.server.address("disk"), check=False).returncode, 0)
        self.assertLess(time.monotonic() - started, 6)
        self.assertIn("cannot open the NBD export", self.tgtd.log())

    def test_server_that_never_answers_is_given_up(self):
        unit = self.connect()
        self.server.kill()
        self.server.socket_path.unlink()
        with socket.socket(socket.AF_UNIX) as mute:
            mute.bind(str(self.server.socket_path))
            mute.listen(16)
            tag = unit.send(initiator.read16(0, 8), data_in_bytes=4096)
            harness.wait_until(lambda: "handshake took too long" in self.tgtd.log() or mute.accept(), "an attempt")
            self.assertNotEqual(self.tgtd.add_lun(3, self.server.address("disk"), check=False).returncode, 0)
            self.assertIn("the handshake took too long", self.tgtd.log())
        self.server.start()
        self.assert_good(unit.wait(tag))

    def test_resize_raises_unit_attention(self):
        one, two = self.connect(), self.connect()
        for size in (2 * LUN_BYTES, LUN_BYTES // 2):
            self.server.kill()
            os.truncate(self.disk, size)
            self.server.start()
            harness.wait_until(lambda: f"to {size}" in self.tgtd.log(), "notice of the new size")
            for unit in (one, two):
                reply = unit.test_unit_ready()
                self.assertEqual((reply.status, reply.key, reply.asc), (CHECK_CONDITION, UNIT_ATTENTION, 0x2A09))
                self.assert_good(unit.test_unit_ready())
                self.assertEqual(unit.capacity()[0], size // 512)
        self.assert_sense(one.read(LUN_BYTES // 512 - 1, 1), 0x05, 0x2100)

    def test_command_beyond_a_shrunken_end_is_refused(self):
        """It was accepted at the old size and is held while the export shrinks."""
        unit = self.connect()
        self.server.kill()
        tag = unit.send(initiator.read16(LUN_BYTES // 512 - 8, 8), data_in_bytes=4096)
        self.assertIsNone(unit.wait(tag, 0.3))
        os.truncate(self.disk, LUN_BYTES // 2)
        self.server.start()
        self.assert_sense(unit.wait(tag), 0x05, 0x2100)


class LostWrites(TargetTest):
    """The server's description names its generation; see loss.c."""

    nbd_arguments = ("--filter=exportname", "exportdesc=fixed:a volume, generation 00000000000000a1")

    def come_back(self, text):
        self.server.kill()
        self.server.arguments = ["--filter=exportname", f"exportdesc=fixed:{text}"]
        backs = self.tgtd.log().count("NBD server is back")
        self.server.start()
        harness.wait_until(lambda: self.tgtd.log().count("NBD server is back") >= backs + 2, "both units' servers")

    def lose(self, digits):
        self.come_back(f"a volume, generation {digits}")

    def assert_told(self, unit, command=initiator.SYNCHRONIZE_CACHE, data=b""):
        self.assert_sense(unit.test_unit_ready(), UNIT_ATTENTION, 0x2901)
        self.assert_sense(unit.wait(unit.send(command, data)), MEDIUM_ERROR, 0x0C00)
        self.assert_good(unit.wait(unit.send(command, data)))

    def assert_not_told(self, unit):
        self.assert_good(unit.test_unit_ready())
        self.assert_good(unit.wait(unit.send(initiator.SYNCHRONIZE_CACHE)))

    def test_next_flush_fails_once(self):
        one, two, other = self.connect(), self.connect(), self.connect(2)
        self.assert_good(one.write(0, b"x" * 512))
        self.lose("00000000000000a2")
        self.assert_told(one)
        self.assert_sense(two.test_unit_ready(), UNIT_ATTENTION, 0x2901)
        self.assert_not_told(two)
        self.assert_not_told(other)
        self.assertEqual(self.tgtd.log().count("has lost writes"), 1)
        self.lose("00000000000000a3")
        self.assert_not_told(one)

    def test_next_forced_write_fails_once(self):
        unit = self.connect()
        self.assert_good(unit.write(0, b"x" * 512))
        self.lose("00000000000000a2")
        self.assert_told(unit, initiator.write16(0, 1, fua=True), b"y" * 512)

    def test_flush_that_was_held_fails(self):
        unit = self.connect()
        self.assert_good(unit.write(0, b"x" * 512))
        self.server.kill()
        tag = unit.send(initiator.SYNCHRONIZE_CACHE)
        self.assertIsNone(unit.wait(tag, 0.3))
        self.lose("00000000000000a2")
        self.assert_sense(unit.wait(tag), MEDIUM_ERROR, 0x0C00)

    def test_nothing_is_said_of_what_was_flushed_or_forced(self):
        unit = self.connect()
        self.assert_good(unit.write(0, b"x" * 512))
        self.assert_good(unit.wait(unit.send(initiator.SYNCHRONIZE_CACHE)))
        self.assert_good(unit.write(0, b"y" * 512, fua=True))
        self.lose("00000000000000a2")
        self.assert_not_told(unit)

    def test_what_was_flushed_is_lost_too(self):
        """The first half of the generation tells, as after a recovery."""
        unit = self.connect()
        self.assert_good(unit.write(0, b"x" * 512))
        self.assert_good(unit.wait(unit.send(initiator.SYNCHRONIZE_CACHE)))
        self.lose("00000001000000a1")
        self.assert_told(unit)
        self.lose("00000001000000a2")
        self.assert_not_told(unit)

    def test_nothing_is_said_without_another_generation(self):
        unit = self.connect()
        for text in (
            "a volume, generation 00000000000000a1",
            "",
            "short",
            "a volume, generation 00000000000000a",
            "a volume, generation 00000000000000A2",
            "a volume, generation 00000000000000a2.",
            "a volume, generation 00000000000000a1",
        ):
            self.assert_good(unit.write(0, b"x" * 512))
            self.come_back(text)
            self.assert_not_told(unit)
        # One that said nothing in between is no excuse.
        self.assert_good(unit.write(0, b"x" * 512))
        self.come_back("")
        self.lose("00000000000000a2")
        self.assert_told(unit)


class SlowServer(TargetTest):
    nbd_arguments = ("--filter=delay", "rdelay=100ms", "wdelay=300ms")

    def test_compare_and_write_is_not_compared_again(self):
        """The server dies between comparison and answer: the comparison has succeeded,
        so the write is issued again and the command ends well."""
        unit = self.connect()
        for i in range(3):
            old, new = self.disk.read_bytes()[:512], bytes([i + 1]) * 512
            tag = unit.send(initiator.compare_and_write(0, 1), old + new)
            self.assertIsNone(unit.wait(tag, 0.2))
            self.server.kill()
            # As if the write had been done before the end.
            with open(self.disk, "r+b") as file:
                file.write(new)
            self.server.start()
            self.assert_good(unit.wait(tag))
            self.assertEqual(unit.read(0, 1).data, new)

    def test_compare_and_write_in_doubt_is_not_busy(self):
        unit = self.connect()
        tag = unit.send(initiator.compare_and_write(0, 1), bytes(512) + b"n" * 512)
        self.assertIsNone(unit.wait(tag, 0.2))
        self.server.kill()
        reply = unit.wait(tag, HOLD_S + 10)
        self.assertEqual((reply.status, reply.key), (CHECK_CONDITION, ABORTED_COMMAND))
        self.server.start()


class ShuttingDown(TargetTest):
    """A server that answers ESHUTDOWN first: the commands go to its successor."""

    def test_no_command_fails(self):
        unit = self.connect()
        self.server.kill()
        self.server.arguments = ["--filter=error", "error=ESHUTDOWN", "error-rate=100%"]
        self.server.start()
        tag = unit.send(initiator.write16(0, 8), b"s" * 4096)
        self.assertIsNone(unit.wait(tag, 1))
        self.server.kill()
        self.server.arguments = []
        self.server.start()
        self.assert_good(unit.wait(tag))
        self.assertEqual(unit.read(0, 8).data, b"s" * 4096)


@unittest.skipIf(MISSING, MISSING)
@unittest.skipUnless(shutil.which("qemu-io"), "qemu-io is not installed")
class QemuIo(TargetTest):
    def test_rides_out_a_restart(self):
        command = ["qemu-io", "-f", "raw", self.tgtd.url()]
        for i in range(60):
            command += ["-c", f"write -P {i + 1} {i}M 1M"]
        for i in range(60):
            command += ["-c", f"read -P {i + 1} {i}M 1M"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(3):
            time.sleep(0.1)
            self.server.kill()
            time.sleep(0.2)
            self.server.start()
        output, _ = process.communicate(timeout=120)
        if "Unknown protocol" in output:
            self.skipTest("qemu's iSCSI driver is not installed")
        self.assertEqual(process.returncode, 0, output[-2000:])
        self.assertNotIn("failed", output)
        self.assertEqual(output.count("1 MiB, 1 ops"), 120)


if __name__ == "__main__":
    unittest.main()
