# SPDX-License-Identifier: GPL-2.0-only
"""A small iSCSI initiator: one session, one connection, no digests.

It shows what the tests need and libraries hide: sense data as sent, commands that
stay unanswered, task management, and connections that are dropped on purpose.
"""

import itertools
import select
import socket
import struct
import time

GOOD, CHECK_CONDITION, BUSY, TASK_SET_FULL, TASK_ABORTED = 0x00, 0x02, 0x08, 0x28, 0x40
UNIT_ATTENTION = 0x06

_names = itertools.count(1)


class Reply:
    def __init__(self, status, sense=b"", data=b""):
        self.status, self.sense, self.data = status, sense, data

    @property
    def key(self):
        return self.sense[2] & 0x0F if len(self.sense) > 2 else None

    @property
    def asc(self):
        return self.sense[12] << 8 | self.sense[13] if len(self.sense) > 13 else None

    @property
    def information(self):
        return struct.unpack(">I", self.sense[3:7])[0] if self.sense and self.sense[0] & 0x80 else None

    def __repr__(self):
        return f"Reply(status={self.status:#x}, key={self.key}, asc={self.asc and hex(self.asc)}, {len(self.data)} bytes)"


class Initiator:
    def __init__(self, port, iqn, lun=1, ready=True):
        self.lun = lun
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.command_sn, self.expected_status_sn = 1, 0
        self.tags = itertools.count(1)
        self.received = b""
        self.replies, self.task_replies, self.data, self.pending = {}, {}, {}, {}
        self.name = f"iqn.2026-01.test.initiator:{next(_names)}"
        self._login(iqn)
        if ready:
            self.clear_unit_attentions()

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- PDUs ----

    def _send_pdu(self, header, data=b""):
        header = header[:5] + len(data).to_bytes(3, "big") + header[8:]
        self.socket.sendall(header + data + b"\0" * (-len(data) % 4))

    def _receive_pdu(self, timeout_s):
        until = time.monotonic() + timeout_s
        while True:
            if len(self.received) >= 48:
                length = int.from_bytes(self.received[5:8], "big")
                total = 48 + length + (-length % 4)
                if len(self.received) >= total:
                    pdu, self.received = self.received[:total], self.received[total:]
                    return pdu[:48], pdu[48 : 48 + length]
            rest = until - time.monotonic()
            if rest <= 0 or not select.select([self.socket], [], [], rest)[0]:
                return None
            part = self.socket.recv(1 << 18)
            if not part:
                raise ConnectionError("the target closed the connection")
            self.received += part

    def _login(self, iqn):
        keys = {
            "InitiatorName": self.name, "TargetName": iqn, "SessionType": "Normal", "HeaderDigest": "None",
            "DataDigest": "None", "InitialR2T": "Yes", "ImmediateData": "Yes", "MaxRecvDataSegmentLength": "262144",
            "ErrorRecoveryLevel": "0", "MaxConnections": "1",
        }
        text = b"".join(f"{k}={v}\0".encode() for k, v in keys.items())
        isid = bytes([0x80, 0, 0, 0, 0, 1])
        header = bytes([0x43, 0x87, 0, 0]) + bytes(4) + isid + bytes(2) + struct.pack(">IIII", 0, 0, self.command_sn, 0)
        self._send_pdu(header.ljust(48, b"\0"), text)
        reply, _ = self._receive_pdu(10)
        if reply[36] or not reply[1] & 0x80:
            raise ConnectionError(f"login refused: class {reply[36]}, detail {reply[37]}, flags {reply[1]:#x}")
        self.expected_status_sn = struct.unpack(">I", reply[24:28])[0] + 1

    def _lun_field(self):
        return bytes([0, self.lun]) + bytes(6)

    # ---- commands ----

    def send(self, cdb, data_out=b"", data_in_bytes=0, expected_bytes=None, attribute=1):
        """Starts a command and returns its tag."""
        tag = next(self.tags)
        flags = 0x80 | attribute | (0x20 if data_out else 0) | (0x40 if data_in_bytes else 0)
        length = len(data_out) or data_in_bytes if expected_bytes is None else expected_bytes
        header = bytes([0x01, flags, 0, 0]) + bytes(4) + self._lun_field()
        header += struct.pack(">IIII", tag, length, self.command_sn, self.expected_status_sn) + bytes(cdb).ljust(16, b"\0")
        self.command_sn += 1
        self.pending[tag] = data_out
        self.data[tag] = bytearray(data_in_bytes)
        self._send_pdu(header, data_out[:8192])
        return tag

    def _answer_r2t(self, header):
        tag, transfer_tag = struct.unpack(">II", header[16:24])
        offset, length = struct.unpack(">II", header[40:48])
        end, number = offset + length, 0
        while offset < end:
            part = self.pending[tag][offset : min(end, offset + 8192)]
            final = 0x80 if offset + len(part) >= end else 0
            out = bytes([0x05, final, 0, 0]) + bytes(4) + self._lun_field()
            out += struct.pack(">IIIIIIII", tag, transfer_tag, 0, self.expected_status_sn, 0, number, offset, 0)
            self._send_pdu(out, part)
            offset, number = offset + len(part), number + 1

    def _handle(self, header, data):
        opcode = header[0] & 0x3F
        tag = struct.unpack(">I", header[16:20])[0]
        if opcode != 0x31:
            self.expected_status_sn = max(self.expected_status_sn, struct.unpack(">I", header[24:28])[0] + 1)
        if opcode == 0x21:
            sense = data[2 : 2 + int.from_bytes(data[:2], "big")] if data else b""
            self.replies[tag] = Reply(header[3], sense, bytes(self.data.pop(tag, b"")))
        elif opcode == 0x25:
            offset = struct.unpack(">I", header[40:44])[0]
            self.data[tag][offset : offset + len(data)] = data
            if header[1] & 0x01:
                self.replies[tag] = Reply(header[3], b"", bytes(self.data.pop(tag)))
        elif opcode == 0x31:
            self._answer_r2t(header)
        elif opcode == 0x22:
            self.task_replies[tag] = header[2]
        elif opcode == 0x20:
            if header[20:24] != b"\xff\xff\xff\xff":
                out = bytes([0x40, 0x80, 0, 0]) + bytes(4) + header[8:16] + b"\xff\xff\xff\xff" + header[20:24]
                self._send_pdu((out + struct.pack(">II", self.command_sn, self.expected_status_sn)).ljust(48, b"\0"))
        else:
            raise ConnectionError(f"unexpected PDU {opcode:#x}")

    def _wait_in(self, replies, tag, timeout_s):
        until = time.monotonic() + timeout_s
        while tag not in replies:
            pdu = self._receive_pdu(max(0.0, until - time.monotonic()))
            if pdu is None:
                return None
            self._handle(*pdu)
        return replies.pop(tag)

    def wait(self, tag, timeout_s=30.0):
        """The reply, or None if there is none in time."""
        return self._wait_in(self.replies, tag, timeout_s)

    def run(self, cdb, data_out=b"", data_in_bytes=0, timeout_s=30.0, **more):
        reply = self.wait(self.send(cdb, data_out, data_in_bytes, **more), timeout_s)
        if reply is None:
            raise TimeoutError(f"no reply to {bytes(cdb).hex()} within {timeout_s} s")
        return reply

    def send_task_management(self, function, referenced_tag=0xFFFFFFFF):
        tag = next(self.tags)
        header = bytes([0x42, 0x80 | function, 0, 0]) + bytes(4) + self._lun_field()
        header += struct.pack(">IIII", tag, referenced_tag, self.command_sn, self.expected_status_sn)
        self._send_pdu(header.ljust(48, b"\0"))
        return tag

    def wait_task_management(self, tag, timeout_s=30.0):
        return self._wait_in(self.task_replies, tag, timeout_s)

    # ---- SCSI ----

    def clear_unit_attentions(self):
        while (reply := self.test_unit_ready()).status != GOOD:
            if reply.key != UNIT_ATTENTION:
                raise ConnectionError(f"unit not ready: {reply}")

    def test_unit_ready(self):
        return self.run(bytes(6))

    def read(self, lba, blocks, **more):
        return self.run(read16(lba, blocks), data_in_bytes=blocks * 512, **more)

    def write(self, lba, data, fua=False, **more):
        return self.run(write16(lba, len(data) // 512, fua), data, **more)

    def compare_and_write(self, lba, expected, new, **more):
        return self.run(compare_and_write(lba, len(expected) // 512), expected + new, **more)

    def unmap(self, *ranges, **more):
        data = struct.pack(">HH4x", 6 + 16 * len(ranges), 16 * len(ranges))
        data += b"".join(struct.pack(">QI4x", lba, blocks) for lba, blocks in ranges)
        return self.run(bytes([0x42, 0, 0, 0, 0, 0, 0]) + struct.pack(">H", len(data)) + b"\0", data, **more)

    def lba_status(self, lba, room_bytes=4096):
        """[(lba, blocks, status)], status 1: deallocated."""
        reply = self.run(bytes([0x9E, 0x12]) + struct.pack(">QI2x", lba, room_bytes), data_in_bytes=room_bytes)
        if reply.status != GOOD:
            return reply
        length = struct.unpack(">I", reply.data[:4])[0]
        return [struct.unpack(">QIB3x", reply.data[i : i + 16]) for i in range(8, min(4 + length, room_bytes - 15), 16)]

    def capacity(self):
        """(blocks, block bytes, bytes 12 to 15 of READ CAPACITY(16))"""
        reply = self.run(bytes([0x9E, 0x10]) + struct.pack(">QI2x", 0, 32), data_in_bytes=32)
        last, size = struct.unpack(">QI", reply.data[:12])
        return last + 1, size, reply.data[12:16]

    def inquiry_page(self, page):
        return self.run(bytes([0x12, 1, page, 0, 255, 0]), data_in_bytes=255).data


def read16(lba, blocks):
    return bytes([0x88, 0]) + struct.pack(">QI2x", lba, blocks)


def write16(lba, blocks, fua=False):
    return bytes([0x8A, 8 if fua else 0]) + struct.pack(">QI2x", lba, blocks)


def compare_and_write(lba, blocks):
    return bytes([0x89, 0]) + struct.pack(">Q3xB2x", lba, blocks)


def write_same16(lba, blocks, flags=0):
    return bytes([0x93, flags]) + struct.pack(">QI2x", lba, blocks)


SYNCHRONIZE_CACHE = bytes([0x35]) + bytes(9)
