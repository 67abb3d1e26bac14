"""What a tree of files must look like after a sequence of operations: the rules of POSIX, in memory.

Every operation changes the tree or raises `OSError` with the errno that Linux gives, and then changes nothing.
"""

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field

from harness.front_ends import Kind


@dataclass(eq=False)
class FileNode:
    content: bytearray = field(default_factory=bytearray)
    links: int = 1
    kind = Kind.FILE


@dataclass(eq=False)
class SymlinkNode:
    target: str
    kind = Kind.SYMLINK


@dataclass(eq=False)
class DirectoryNode:
    entries: "dict[str, Node]" = field(default_factory=dict)
    kind = Kind.DIRECTORY


Node = FileNode | SymlinkNode | DirectoryNode


def refuse(code: int, path: str) -> OSError:
    return OSError(code, errno.errorcode[code], path)


class TreeModel:
    def __init__(self) -> None:
        self.root = DirectoryNode()

    def find(self, path: str) -> Node | None:
        """The node of that name; symbolic links are not followed."""
        node: Node = self.root
        for name in path.split("/") if path else []:
            if not isinstance(node, DirectoryNode) or name not in node.entries:
                return None
            node = node.entries[name]
        return node

    def walk(self) -> Iterator[tuple[str, Node]]:
        """Every path and its node, the root first."""
        waiting: list[tuple[str, Node]] = [("", self.root)]
        while waiting:
            path, node = waiting.pop()
            yield path, node
            if isinstance(node, DirectoryNode):
                prefix = f"{path}/" if path else ""
                waiting += [(prefix + name, below) for name, below in node.entries.items()]

    def create(self, path: str) -> None:
        self._add(path, FileNode())

    def mkdir(self, path: str) -> None:
        self._add(path, DirectoryNode())

    def symlink(self, target: str, new: str) -> None:
        self._add(new, SymlinkNode(target))

    def link(self, existing: str, new: str) -> None:
        node = self._existing(existing)
        directory, name = self._place(new)
        if name in directory.entries:
            raise refuse(errno.EEXIST, new)
        if isinstance(node, DirectoryNode):
            raise refuse(errno.EPERM, existing)
        directory.entries[name] = node
        if isinstance(node, FileNode):
            node.links += 1

    def write(self, path: str, offset: int, data: bytes) -> None:
        content = self._file(path).content
        if data and len(content) < offset:
            content.extend(bytes(offset - len(content)))
        content[offset : offset + len(data)] = data

    def truncate(self, path: str, size: int) -> None:
        content = self._file(path).content
        del content[size:]
        content.extend(bytes(size - len(content)))

    def read(self, path: str, offset: int, length: int) -> bytes:
        return bytes(self._file(path).content[offset : offset + length])

    def unlink(self, path: str) -> None:
        node = self._existing(path)
        if isinstance(node, DirectoryNode):
            raise refuse(errno.EISDIR, path)
        self._remove(path)

    def rmdir(self, path: str) -> None:
        node = self._existing(path)
        if not isinstance(node, DirectoryNode):
            raise refuse(errno.ENOTDIR, path)
        if node.entries:
            raise refuse(errno.ENOTEMPTY, path)
        self._remove(path)

    def rename(self, source: str, target: str) -> None:
        moved = self._existing(source)
        directory, name = self._place(target)
        replaced = directory.entries.get(name)
        if isinstance(moved, DirectoryNode) and target.startswith(f"{source}/"):
            raise refuse(errno.EINVAL, target)
        if replaced is moved:
            return
        if isinstance(replaced, DirectoryNode):
            if source.startswith(f"{target}/"):
                raise refuse(errno.ENOTEMPTY, target)
            if not isinstance(moved, DirectoryNode):
                raise refuse(errno.EISDIR, target)
            if replaced.entries:
                raise refuse(errno.ENOTEMPTY, target)
        elif replaced is not None and isinstance(moved, DirectoryNode):
            raise refuse(errno.ENOTDIR, target)
        if replaced is not None:
            self._remove(target)
        old_directory, old_name = self._place(source)
        del old_directory.entries[old_name]
        directory.entries[name] = moved

    def _place(self, path: str) -> tuple[DirectoryNode, str]:
        parent, _, name = path.rpartition("/")
        node = self.find(parent)
        if node is None:
            raise refuse(errno.ENOENT, path)
        if not isinstance(node, DirectoryNode):
            raise refuse(errno.ENOTDIR, path)
        return node, name

    def _existing(self, path: str) -> Node:
        directory, name = self._place(path)
        if name not in directory.entries:
            raise refuse(errno.ENOENT, path)
        return directory.entries[name]

    def _file(self, path: str) -> FileNode:
        node = self._existing(path)
        if isinstance(node, DirectoryNode):
            raise refuse(errno.EISDIR, path)
        if isinstance(node, SymlinkNode):
            raise refuse(errno.ELOOP, path)
        return node

    def _add(self, path: str, node: Node) -> None:
        directory, name = self._place(path)
        if name in directory.entries:
            raise refuse(errno.EEXIST, path)
        directory.entries[name] = node

    def _remove(self, path: str) -> None:
        directory, name = self._place(path)
        node = directory.entries.pop(name)
        if isinstance(node, FileNode):
            node.links -= 1
