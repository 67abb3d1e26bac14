"""XXH3 with 64 bits, without a seed, of more than 128 bytes or of 17 to 128: descriptors are never shorter."""

import struct

MASK = (1 << 64) - 1
P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64_1, P64_2, P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P64_4, P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e"
    "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a"
    "51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8f"
    "f8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
STRIPE, LANES = 64, struct.Struct("<8Q")
STRIPES_PER_BLOCK = (len(SECRET) - STRIPE) // 8


def word(data: bytes, place: int) -> int:
    return int.from_bytes(data[place : place + 8], "little")


def folded(left: int, right: int) -> int:
    product = left * right
    return (product & MASK) ^ (product >> 64)


def avalanche(value: int) -> int:
    value = ((value ^ (value >> 37)) * 0x165667919E3779F9) & MASK
    return value ^ (value >> 32)


def mixed(data: bytes, place: int, secret: int) -> int:
    return folded(word(data, place) ^ word(SECRET, secret), word(data, place + 8) ^ word(SECRET, secret + 8))


def middle(data: bytes) -> int:
    """17 to 128 bytes."""
    total = len(data) * P64_1
    for pair in range((len(data) - 1) // 32 + 1):
        total += mixed(data, 16 * pair, 32 * pair) + mixed(data, len(data) - 16 * (pair + 1), 32 * pair + 16)
    return avalanche(total & MASK)


def upper_middle(data: bytes) -> int:
    """129 to 240 bytes."""
    total = len(data) * P64_1 + sum(mixed(data, 16 * place, 16 * place) for place in range(8))
    total = avalanche(total & MASK)
    total += sum(mixed(data, 16 * place, 16 * (place - 8) + 3) for place in range(8, len(data) // 16))
    return avalanche((total + mixed(data, len(data) - 16, 136 - 17)) & MASK)


def accumulate(lanes: list[int], data: bytes, place: int, secret: int) -> None:
    values = LANES.unpack_from(data, place)
    keys = LANES.unpack_from(SECRET, secret)
    for lane in range(8):
        key = values[lane] ^ keys[lane]
        lanes[lane ^ 1] = (lanes[lane ^ 1] + values[lane]) & MASK
        lanes[lane] = (lanes[lane] + (key & 0xFFFFFFFF) * (key >> 32)) & MASK


def scramble(lanes: list[int]) -> None:
    keys = LANES.unpack_from(SECRET, len(SECRET) - STRIPE)
    for lane, value in enumerate(lanes):
        lanes[lane] = ((value ^ (value >> 47) ^ keys[lane]) * P32_1) & MASK


def long(data: bytes) -> int:
    lanes = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1]
    for stripe in range((len(data) - 1) // STRIPE):
        accumulate(lanes, data, STRIPE * stripe, 8 * (stripe % STRIPES_PER_BLOCK))
        if stripe % STRIPES_PER_BLOCK == STRIPES_PER_BLOCK - 1:
            scramble(lanes)
    accumulate(lanes, data, len(data) - STRIPE, len(SECRET) - STRIPE - 7)
    total = len(data) * P64_1
    for pair in range(4):
        left, right = lanes[2 * pair], lanes[2 * pair + 1]
        total += folded(left ^ word(SECRET, 11 + 16 * pair), right ^ word(SECRET, 19 + 16 * pair))
    return avalanche(total & MASK)


def xxh3(data: bytes) -> int:
    if len(data) <= 128:
        return middle(data)
    return upper_middle(data) if len(data) <= 240 else long(data)
