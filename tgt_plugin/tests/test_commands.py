# SPDX-License-Identifier: GPL-2.0-only
"""What each command does to the data, and what the unit says of itself."""

import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import threading
import unittest
import unittest.mock

import harness
import initiator
from initiator import BUSY, CHECK_CONDITION, GOOD

LUN_BYTES = 64 << 20
MISSING = harness.missing_requirement()
SEED = int(os.environ.get("SEED", "1"))

ILLEGAL_REQUEST, DATA_PROTECT, MEDIUM_ERROR, MISCOMPARE = 0x05, 0x07, 0x03, 0x0E


class TargetTest(unittest.TestCase):
    """A tgtd with unit 1 on export "disk" and unit 2 on export "other"."""

    nbd_arguments = ()
    nbd_plugin = None

    def setUp(self):
        if MISSING:
            self.skipTest(MISSING)
        directory = self.enterContext(harness.temporary_directory())
        self.server = harness.NbdServer(directory, *self.nbd_arguments, plugin=self.nbd_plugin)
        self.disk = self.server.create("disk", LUN_BYTES)
        self.other = self.server.create("other", LUN_BYTES)
        self.addCleanup(self.server.kill)
        self.server.start()
        self.tgtd = harness.Tgtd(directory)
        self.addCleanup(self.tgtd.stop)
        self.tgtd.start()
        self.tgtd.add_target()
        self.tgtd.add_lun(1, self.server.address("disk"))
        self.tgtd.add_lun(2, self.server.address("other"))

    def tearDown(self):
        self.assertTrue(self.tgtd.is_alive(), self.tgtd.log()[-4000:])

    def connect(self, lun=1, ready=True):
        session = initiator.Initiator(self.tgtd.port, harness.IQN, lun, ready)
        self.addCleanup(session.close)
        return session

    def assert_good(self, reply):
        self.assertEqual(reply.status, GOOD, reply)
        return reply

    def assert_sense(self, reply, key, asc):
        self.assertEqual((reply.status, reply.key, reply.asc), (CHECK_CONDITION, key, asc), reply)


class Identity(TargetTest):
    def test_reports_thin_provisioning_and_512e(self):
        unit = self.connect()
        blocks, block_bytes, flags = unit.capacity()
        self.assertEqual((blocks * block_bytes, block_bytes), (LUN_BYTES, 512))
        self.assertEqual(flags[1], 3, "8 logical blocks per physical block")
        self.assertEqual(flags[2] & 0xC0, 0xC0, "LBPME and LBPRZ")
        limits = unit.inquiry_page(0xB0)
        self.assertEqual(limits[5], 128, "COMPARE AND WRITE")
        self.assertEqual(struct.unpack(">IIII", limits[20:36]), (0xFFFFFFFF, 256, 8, 1 << 31))
        self.assertEqual(unit.inquiry_page(0xB2)[5:7], b"\xe4\x02")

    def test_refuses_what_is_not_local(self):
        for address in ("nbd://192.0.2.1/disk", "nbd://127.0.0.1.example.com/disk", "nbds://127.0.0.1/x", "relative:disk"):
            self.assertNotEqual(self.tgtd.add_lun(9, address, check=False).returncode, 0, address)
        self.assertNotEqual(self.tgtd.add_lun(9, self.server.address("no-such-export"), check=False).returncode, 0)
        self.assertIn("no-such-export: cannot open the NBD export", self.tgtd.log())

    @unittest.skipUnless(shutil.which("tgt-admin"), "tgt-admin is not installed")
    def test_targets_conf(self):
        """The file of README.md: tgt-admin wants every backing-store to exist as a file."""
        for name in ("disk", "other"):
            pathlib.Path(self.server.address(name)).touch()
        stores = "".join(f"  backing-store {self.server.address(name)}\n" for name in ("disk", "other"))
        configuration = self.server.directory / "targets.conf"
        configuration.write_text(f"<target {harness.IQN}.conf>\n  bs-type tombolo\n{stores}</target>\n")
        command = ["tgt-admin", "-C", self.tgtd.control, "-e", "-c", str(configuration)]
        subprocess.run(command, env=self.tgtd.environment, check=True, capture_output=True, timeout=60)
        for lun in (1, 2):
            with initiator.Initiator(self.tgtd.port, harness.IQN + ".conf", lun) as unit:
                self.assertEqual(unit.capacity()[0], LUN_BYTES // 512)

    def test_other_ways_to_name_the_export(self):
        self.tgtd.add_lun(3, f"nbd+unix:///disk?socket={self.server.socket_path}")
        self.tgtd.add_lun(4, str(self.server.socket_path), "--bsopts", "export=disk")
        self.assert_good(self.connect(1).write(0, b"x" * 512))
        for lun in (3, 4):
            self.assertEqual(self.connect(lun).read(0, 1).data, b"x" * 512)


class Data(TargetTest):
    def test_random_commands_against_a_model(self):
        """Two units, one seed: every read must equal a byte array that saw the same commands."""
        choice = random.Random(SEED)
        region_blocks = 512
        units = {lun: (self.connect(lun), bytearray(region_blocks * 512)) for lun in (1, 2)}
        for step in range(400):
            lun = choice.choice((1, 2))
            unit, model = units[lun]
            lba = choice.randrange(region_blocks)
            blocks = choice.randint(1, min(64, region_blocks - lba))
            span = slice(lba * 512, (lba + blocks) * 512)
            context = f"SEED={SEED} step={step}"
            action = choice.choice(("write", "write", "read", "unmap", "same", "zero", "or", "verify", "writeverify", "caw"))
            data = choice.randbytes(blocks * 512)
            if action == "write":
                self.assert_good(unit.write(lba, data, fua=choice.random() < 0.3))
                model[span] = data
            elif action == "read":
                self.assertEqual(unit.read(lba, blocks).data, model[span], context)
            elif action == "unmap":
                self.assert_good(unit.unmap((lba, blocks), (0, 0)))
                model[span] = bytes(len(data))
            elif action in ("same", "zero"):
                block = data[:512] if action == "same" else bytes(512)
                self.assert_good(unit.run(initiator.write_same16(lba, blocks), block))
                model[span] = block * blocks
            elif action == "or":
                self.assert_good(unit.run(bytes([0x8B, 0]) + struct.pack(">QI2x", lba, blocks), data))
                model[span] = bytes(a | b for a, b in zip(model[span], data))
            elif action == "verify":
                self.assert_good(unit.run(bytes([0x8F, 2]) + struct.pack(">QI2x", lba, blocks), bytes(model[span])))
            elif action == "writeverify":
                self.assert_good(unit.run(bytes([0x8E, 2]) + struct.pack(">QI2x", lba, blocks), data))
                model[span] = data
            else:
                self.assert_good(unit.compare_and_write(lba, bytes(model[span]), data))
                model[span] = data
        for lun, (unit, model) in units.items():
            self.assert_good(unit.run(initiator.SYNCHRONIZE_CACHE))
            self.assertEqual(unit.read(0, region_blocks).data, model, f"SEED={SEED} unit {lun}")
        for path, (_, model) in zip((self.disk, self.other), units.values()):
            self.assertEqual(path.read_bytes()[: len(model)], model, f"SEED={SEED} {path.name}")

    def test_large_pattern_is_written_in_pieces(self):
        unit = self.connect()
        block = os.urandom(512)
        self.assert_good(unit.run(initiator.write_same16(1, 0), block))  # 0: up to the end
        content = self.disk.read_bytes()
        self.assertEqual(content[:512], bytes(512))
        self.assertEqual(content[512:], block * (LUN_BYTES // 512 - 1))
        self.assert_good(unit.run(initiator.write_same16(0, 0, flags=1)))  # NDOB
        self.assertEqual(self.disk.read_bytes(), bytes(LUN_BYTES))

    def test_verify_with_one_block(self):
        unit = self.connect()
        block = os.urandom(512)
        self.assert_good(unit.write(0, block * 16))
        verify = bytes([0x8F, 6]) + struct.pack(">QI2x", 0, 16)
        self.assert_good(unit.run(verify, block))
        self.assert_good(unit.write(9, block[:-1] + bytes([block[-1] ^ 1])))
        reply = unit.run(verify, block)
        self.assert_sense(reply, MISCOMPARE, 0x1D00)

    def test_miscompare_names_the_byte(self):
        unit = self.connect()
        old, new = os.urandom(4096), os.urandom(4096)
        self.assert_good(unit.write(0, old))
        wrong = bytearray(old)
        wrong[1234] ^= 0x40
        reply = unit.compare_and_write(0, bytes(wrong), new)
        self.assert_sense(reply, MISCOMPARE, 0x1D00)
        self.assertEqual(reply.information, 1234)
        self.assertEqual(unit.read(0, 8).data, old)

    def test_compare_and_write_checks_its_length(self):
        unit = self.connect()
        reply = unit.run(initiator.compare_and_write(0, 1), bytes(512))
        self.assert_sense(reply, ILLEGAL_REQUEST, 0x2400)
        reply = unit.run(initiator.compare_and_write(0, 129), bytes(2 * 129 * 512))
        self.assert_sense(reply, ILLEGAL_REQUEST, 0x2400)

    def test_unmap_checks_all_descriptors_before_the_first(self):
        unit = self.connect()
        data = os.urandom(4096)
        self.assert_good(unit.write(0, data))
        self.assert_sense(unit.unmap((0, 8), (LUN_BYTES // 512, 1)), ILLEGAL_REQUEST, 0x2100)
        self.assert_sense(unit.unmap((0, 8), (1 << 63, 0xFFFFFFFF)), ILLEGAL_REQUEST, 0x2100)
        self.assert_sense(unit.unmap(*[(0, 8)] * 257), ILLEGAL_REQUEST, 0x2600)
        self.assertEqual(unit.read(0, 8).data, data)
        self.assert_good(unit.unmap(*[(0, 8)] * 256))
        self.assertEqual(unit.read(0, 8).data, bytes(4096))
        self.assert_good(unit.run(bytes([0x42]) + bytes(9)))

    def test_lba_status_follows_allocation(self):
        unit = self.connect()
        self.assertEqual(unit.lba_status(0), [(0, LUN_BYTES // 512, 1)])
        self.assert_good(unit.write(64, os.urandom(64 * 512)))
        self.assert_good(unit.unmap((80, 16)))
        expected = [(0, 64, 1), (64, 16, 0), (80, 16, 1), (96, 32, 0), (128, LUN_BYTES // 512 - 128, 1)]
        self.assertEqual(unit.lba_status(0), expected)
        self.assertEqual(unit.lba_status(70, room_bytes=24), [(70, 10, 0)])
        self.assert_sense(unit.lba_status(LUN_BYTES // 512), ILLEGAL_REQUEST, 0x2100)


class WriteThrough(TargetTest):
    @property
    def log_file(self):
        return self.server.directory / "requests.log"

    def setUp(self):
        # nbdkit's log filter writes one line per request; the path is known in setUp only.
        self.enterContext(unittest.mock.patch.object(harness.NbdServer, "start", self.start_logged(harness.NbdServer.start)))
        super().setUp()

    @staticmethod
    def start_logged(start):
        def start_with_log(server):
            server.arguments = ["--filter=log", f"logfile={server.directory}/requests.log"]
            start(server)

        return start_with_log

    def writes(self):
        lines = self.log_file.read_text().splitlines()
        return [("fua=1" in line) for line in lines if re.search(r" (Write|Zero) id=", line)]

    def test_fua_follows_the_command_and_the_caching_page(self):
        unit = self.connect()
        self.assert_good(unit.write(0, bytes(4096)))
        self.assert_good(unit.write(0, bytes(4096), fua=True))
        self.assertEqual(self.writes(), [False, True])
        page = bytearray(unit.run(bytes([0x1A, 8, 0x08, 0, 24, 0]), data_in_bytes=24).data)
        page[0] = page[2] = 0
        page[4 + 2] &= ~0x04  # WCE
        self.assert_good(unit.run(bytes([0x15, 0x10, 0, 0, len(page), 0]), bytes(page)))
        self.assert_good(unit.write(0, bytes(4096)))
        self.assert_good(unit.unmap((0, 8)))
        self.assertEqual(self.writes(), [False, True, True, True])


class Atomicity(TargetTest):
    # Replies take longer than a command to arrive, so that commands overlap.
    nbd_arguments = ("--filter=delay", "rdelay=20ms", "wdelay=20ms")

    def test_compare_and_write_of_two_initiators(self):
        """Each of two initiators adds to a counter by COMPARE AND WRITE until it has
        won its turns: no increment may be lost."""
        turns = 15
        failures = []

        def work():
            try:
                with initiator.Initiator(self.tgtd.port, harness.IQN) as unit:
                    won = 0
                    while won < turns:
                        old = unit.read(0, 1).data
                        new = struct.pack(">Q", struct.unpack(">Q", old[:8])[0] + 1).ljust(512, b"\0")
                        reply = unit.compare_and_write(0, old, new)
                        won += reply.status == GOOD
                        if reply.status != GOOD and reply.key != MISCOMPARE:
                            failures.append(reply)
                            return
            except Exception as error:  # reported by the main thread
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        counter = struct.unpack(">Q", self.connect().read(0, 1).data[:8])[0]
        self.assertEqual(counter, 2 * turns)

    def test_writes_wait_for_a_compare_and_write(self):
        """Of a COMPARE AND WRITE and an overlapping write sent after it, the write wins;
        a write that does not overlap is not held up."""
        one, two = self.connect(), self.connect()
        old, swapped, written = bytes(4096), b"c" * 4096, b"w" * 4096
        for _ in range(5):
            self.assert_good(one.write(0, old))
            first = one.send(initiator.compare_and_write(0, 8), old + swapped)
            second = two.send(initiator.write16(4, 8), written)
            elsewhere = two.send(initiator.write16(64, 8), written)
            self.assert_good(two.wait(elsewhere))
            self.assert_good(one.wait(first))
            self.assert_good(two.wait(second))
            self.assertEqual(one.read(0, 12).data, swapped[:2048] + written)

    def test_abort_of_commands_under_way(self):
        unit = self.connect()
        tags = [unit.send(initiator.write16(8 * i, 8), b"a" * 4096) for i in range(8)]
        task = unit.send_task_management(1, tags[3])
        self.assertIn(unit.wait_task_management(task), (0, 1))
        for tag in tags:
            unit.wait(tag)
        task_tags = [unit.send(initiator.read16(8 * i, 8), data_in_bytes=4096) for i in range(8)]
        reset = unit.send_task_management(5)
        self.assertEqual(unit.wait_task_management(reset), 0)
        for tag in task_tags:
            unit.wait(tag, 2)
        unit.clear_unit_attentions()
        self.assertEqual(unit.read(0, 8).data, b"a" * 4096)

    def test_initiator_that_leaves_with_commands_under_way(self):
        for _ in range(5):
            unit = self.connect()
            for i in range(16):
                unit.send(initiator.write16(8 * i, 8), b"b" * 4096)
                unit.send(initiator.compare_and_write(8 * i, 4), b"b" * 4096)
            unit.close()
        self.assert_good(self.connect().read(0, 8))


class UnitChange(TargetTest):
    # No command ends of itself before the unit is changed.
    nbd_arguments = ("--filter=delay", "rdelay=1000ms", "wdelay=1000ms")

    def test_path_change_with_commands_under_way(self):
        """tgtd closes the backing store under commands; they must end, and once."""
        # A server of its own: nbdkit 1.32 may die of an assertion of its own
        # (raw_send_socket) when a connection is closed under delayed requests.
        elsewhere = harness.NbdServer(self.enterContext(harness.temporary_directory()))
        other = elsewhere.create("other", LUN_BYTES)
        self.addCleanup(elsewhere.kill)
        elsewhere.start()
        unit = self.connect()
        tags = [unit.send(initiator.write16(8 * i, 8), b"p" * 4096) for i in range(16)]
        tags += [unit.send(initiator.compare_and_write(0, 4), b"p" * 4096) for _ in range(4)]
        # tgtd takes commands in order: when it answers this one it has started the others.
        self.assert_good(unit.test_unit_ready())
        update = ("--op", "update", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "--params")
        self.tgtd.admin(*update, "online=0")
        self.tgtd.admin(*update, f"path={elsewhere.address('other')}")
        self.assertEqual([unit.wait(tag).status for tag in tags], [BUSY] * 20)
        self.assert_good(unit.write(0, b"q" * 4096))
        self.assertEqual(other.read_bytes()[:8192], b"q" * 4096 + bytes(4096))

    def test_unit_with_commands_under_way_is_not_deleted(self):
        unit = self.connect()
        tags = [unit.send(initiator.write16(8 * i, 8), b"d" * 4096) for i in range(16)]
        self.assert_good(unit.test_unit_ready())
        self.assertNotEqual(self.tgtd.remove_lun(1, check=False).returncode, 0)
        for tag in tags:
            self.assert_good(unit.wait(tag))
        self.tgtd.remove_lun(1)
        self.tgtd.add_lun(1, self.server.address("disk"))
        with self.connect() as again:
            self.assertEqual(again.read(0, 8).data, b"d" * 4096)


class Errors(TargetTest):
    nbd_arguments = ("--filter=error", "error=ENOSPC", "error-rate=0%")

    EXPECTED = {
        "EIO": ((CHECK_CONDITION, MEDIUM_ERROR, 0x1100), (CHECK_CONDITION, MEDIUM_ERROR, 0x0C00)),
        "ENOSPC": ((CHECK_CONDITION, DATA_PROTECT, 0x2707), (CHECK_CONDITION, DATA_PROTECT, 0x2707)),
        "EPERM": ((CHECK_CONDITION, DATA_PROTECT, 0x2700), (CHECK_CONDITION, DATA_PROTECT, 0x2700)),
        "EINVAL": ((CHECK_CONDITION, ILLEGAL_REQUEST, 0x2400), (CHECK_CONDITION, ILLEGAL_REQUEST, 0x2400)),
        "ENOMEM": ((BUSY, None, None), (BUSY, None, None)),
    }

    def test_each_error_has_its_sense(self):
        unit = self.connect()
        self.assert_good(unit.write(0, bytes(512)))
        for error, (on_read, on_write) in self.EXPECTED.items():
            self.server.kill()
            self.server.arguments = ["--filter=error", f"error={error}", "error-rate=100%"]
            self.server.start()
            for reply, expected in ((unit.read(0, 1), on_read), (unit.write(0, bytes(512)), on_write)):
                self.assertEqual((reply.status, reply.key, reply.asc), expected, error)
        self.server.kill()
        self.server.arguments = []
        self.server.start()
        self.assert_good(unit.read(0, 1))


class BareServer(TargetTest):
    """A server without WRITE ZEROES, FUA, FLUSH and block status."""

    nbd_arguments = ("--filter=nozero", "--filter=fua", "--filter=noextents", "zeromode=none")

    def test_everything_still_works(self):
        unit = self.connect()
        data = os.urandom(64 * 512)
        self.assert_good(unit.write(0, data, fua=True))
        self.assert_good(unit.unmap((8, 8)))
        self.assert_good(unit.run(initiator.write_same16(16, 2048), bytes(512)))
        self.assertEqual(unit.read(0, 64).data, data[:4096] + bytes(56 * 512))
        self.assertEqual(unit.lba_status(0), [(0, LUN_BYTES // 512, 0)])


class ReadOnlyServer(TargetTest):
    nbd_arguments = ("--readonly",)

    def test_is_write_protected(self):
        unit = self.connect()
        self.assert_good(unit.read(0, 1))
        self.assert_sense(unit.write(0, bytes(512)), DATA_PROTECT, 0x2700)
        self.assert_sense(unit.unmap((0, 8)), DATA_PROTECT, 0x2700)


@unittest.skipIf(MISSING, MISSING)
class Qemu(TargetTest):
    def test_qemu_img_compares_equal(self):
        source = self.server.directory / "random"
        source.write_bytes(os.urandom(8 << 20) + bytes(LUN_BYTES - (8 << 20)))
        convert = ["qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", str(source), self.tgtd.url()]
        try:
            subprocess.run(convert, check=True, capture_output=True, timeout=120)
        except FileNotFoundError:
            self.skipTest("qemu-img is not installed")
        except subprocess.CalledProcessError as error:
            if b"Unknown protocol" in error.stderr:
                self.skipTest("qemu's iSCSI driver is not installed")
            raise
        compare = ["qemu-img", "compare", "-f", "raw", "-F", "raw", str(source), self.tgtd.url()]
        subprocess.run(compare, check=True, capture_output=True, timeout=120)
        self.assertEqual(self.disk.read_bytes(), source.read_bytes())


if __name__ == "__main__":
    unittest.main()
