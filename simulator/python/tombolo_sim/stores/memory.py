"""Objects in memory."""

from tombolo_sim.stores.base import Store


class MemoryStore(Store):
    def __init__(self) -> None:
        super().__init__()
        self._objects: dict[int, bytes] = {}

    def _put(self, object_number: int, contents: bytes) -> None:
        self._objects[object_number] = contents

    def _get(self, object_number: int, offset_bytes: int, count_bytes: int) -> tuple[bytes, None]:
        return self._objects[object_number][offset_bytes : offset_bytes + count_bytes], None

    def delete_all(self) -> None:
        self._objects.clear()
        self._lengths.clear()

    def close(self) -> None:
        pass
