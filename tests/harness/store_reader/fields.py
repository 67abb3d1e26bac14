"""Fields of the formats, and what is said of those that are not as they must be."""

import struct

MASK = (1 << 64) - 1


class Damaged(Exception):
    """Something of the bucket is missing or does not verify."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name}: {what}")
        self.name, self.what = name, what


class Cursor:
    """Reads fields one after the other. `name` is the object's, `part` what of it is read, for complaints."""

    def __init__(self, name: str, part: str, data: bytes) -> None:
        self.name, self.part, self.data, self.place = name, part, data, 0

    def damaged(self, what: str) -> Damaged:
        return Damaged(self.name, f"{self.part}: {what}")

    def require(self, holds: bool, what: str) -> None:
        if not holds:
            raise self.damaged(what)

    @property
    def left(self) -> int:
        return len(self.data) - self.place

    def take(self, length: int) -> bytes:
        self.require(length <= self.left, f"ends at byte {len(self.data)}, within a field")
        self.place += length
        return self.data[self.place - length : self.place]

    def rest(self) -> bytes:
        return self.take(self.left)

    def number(self, length: int) -> int:
        return int.from_bytes(self.take(length), "little")

    def u8(self) -> int:
        return self.number(1)

    def u16(self) -> int:
        return self.number(2)

    def u32(self) -> int:
        return self.number(4)

    def u64(self) -> int:
        return self.number(8)

    def i64(self) -> int:
        value: int = struct.unpack("<q", self.take(8))[0]
        return value

    def text(self, length: int) -> str:
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            raise self.damaged("a name that is not UTF-8") from None

    def varint(self, bits: int = 64) -> int:
        """In as few bytes as it needs."""
        value = shift = 0
        while True:
            byte = self.u8()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                self.require(byte != 0 or shift == 7, "a number in more bytes than it needs")
                self.require(value < 1 << bits, "a number that is too large")
                return value
            self.require(shift < 70, "a number that is too large")

    def difference(self, base: int) -> int:
        """What lies so far from `base`, wrapping at 64 bits."""
        zigzag = self.varint()
        return (base + ((zigzag >> 1) ^ -(zigzag & 1))) & MASK

    def end(self) -> None:
        self.require(self.left == 0, f"{self.left} bytes too many")
