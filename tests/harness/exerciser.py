"""Seeded random operations through several front ends to one tree, each compared with a model in memory.

After every change, what was touched is looked at through all front ends: what one did, the others must see at once.
Only front ends whose server hears of changes in its own time may be late, by `settle_s`, and not with their own. Every
`WHOLE_EVERY` operations, and at the end, each front end's whole view is compared. A failure names seed, step and the
operations that led there, so that it can be replayed.
"""

import errno
import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from harness.front_ends import FrontEnd, Kind
from harness.tree_model import DirectoryNode, FileNode, Node, SymlinkNode, TreeModel

WHOLE_EVERY = 250
TRACE_SHOWN = 25
FILE_BYTES_MAX = 200_000
DIRECTORIES_MAX = 12
NAMES = [
    *(f"n{number}" for number in range(10)),
    *("with space", "grüße", "日本語", ".hidden", "UPPER.TXT", "-dash", "per%cent", "x" * 200),
]
"""Few, so that operations meet. No two differ in case alone, and SMB can say them all."""


class Divergence(AssertionError):
    """A front end does not show what the model says."""


@dataclass(frozen=True)
class Step:
    """One operation: its words for the trace, the paths it touches, and how to do it on a model or a front end."""

    operation: str
    arguments: tuple[object, ...]
    paths: tuple[str, ...]

    def apply(self, to: TreeModel | FrontEnd) -> object:
        function: Callable[..., object] = getattr(to, self.operation)
        return function(*self.arguments)

    def __str__(self) -> str:
        shown = [f"<{len(word)} bytes>" if isinstance(word, bytes) else repr(word) for word in self.arguments]
        return f"{self.operation}({', '.join(shown)})"


def outcome(action: Callable[[], object]) -> tuple[object, int]:
    """The result, or the errno of a refusal."""
    try:
        return action(), 0
    except ConnectionError:
        raise
    except OSError as refused:
        return None, refused.errno or errno.EIO


class Exerciser:
    """All front ends must lead to the same empty directory, `folder`, which nothing else changes."""

    def __init__(
        self,
        seed: int,
        front_ends: Sequence[FrontEnd],
        folder: str = "",
        may_be_late: Collection[str] = (),
        settle_s: float = 0.0,
    ) -> None:
        self.seed = seed
        self.steps = 0
        self.refusals = 0
        self.looks = 0
        self.late_looks = 0
        """At front ends that may be late, and those of them that did not show the change at once."""
        self._may_be_late = may_be_late
        self._settle_s = settle_s
        self.model = TreeModel()
        self._front_ends = list(front_ends)
        self._random = random.Random(seed)
        self._trace: list[str] = []
        if folder:
            self.model.mkdir(folder)
        self._folder = folder

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            if self.steps % WHOLE_EVERY == 0:
                self.compare_all()
        self.compare_all()

    def step(self) -> None:
        """One operation through a random front end, and a look through each."""
        front_end = self._random.choice(self._front_ends)
        step = self._draw(front_end)
        self.steps += 1
        self._trace = [*self._trace[-TRACE_SHOWN:], f"{self.steps} {front_end.name}: {step}"]
        expected, expected_errno = outcome(partial(step.apply, self.model))
        found, found_errno = outcome(partial(step.apply, front_end))
        self.refusals += expected_errno != 0
        same_errno = expected_errno == found_errno or (not front_end.exact_errors and expected_errno and found_errno)
        if not same_errno or (step.operation == "read" and found != expected):
            said, right = self._said(found, found_errno), self._said(expected, expected_errno)
            raise self._divergence(f"{front_end.name}: {step}: {said}, not {right}")
        for path in step.paths:
            for looking in self._front_ends:
                if looking is not front_end and looking.name in self._may_be_late:
                    self._compare_soon(looking, path)
                else:
                    self._compare(looking, path)

    def _compare_soon(self, front_end: FrontEnd, path: str) -> None:
        self.looks += 1
        deadline = time.monotonic() + self._settle_s
        is_late = False
        while True:
            try:
                return self._compare(front_end, path)
            except (Divergence, OSError):
                if time.monotonic() >= deadline:
                    raise
                self.late_looks += not is_late
                is_late = True
                time.sleep(0.002)

    def compare_all(self) -> None:
        """Every front end's view of the whole tree."""
        for front_end in self._front_ends:
            inodes: dict[int, int] = {}
            for path, node in self.model.walk():
                if path.startswith(self._folder):
                    self._compare(front_end, path)
                    self._compare_identity(front_end, path, node, inodes)

    def _compare_identity(self, front_end: FrontEnd, path: str, node: Node, inodes: dict[int, int]) -> None:
        """Two names have one inode number exactly if they are links to one node."""
        if isinstance(node, SymlinkNode) and not front_end.makes_links:
            return
        inode = front_end.status(path).inode
        if inodes.setdefault(inode, id(node)) != id(node):
            raise self._divergence(f"{front_end.name}: {path!r} has inode number {inode} of another file")

    def _compare(self, front_end: FrontEnd, path: str) -> None:
        node = self.model.find(path)
        if isinstance(node, SymlinkNode) and not front_end.makes_links:
            return
        found, code = outcome(lambda: front_end.status(path))
        if node is None:
            if code not in (errno.ENOENT, errno.ENOTDIR):
                raise self._divergence(f"{front_end.name}: {path!r} should not be there: {self._said(found, code)}")
            return
        if code:
            raise self._divergence(f"{front_end.name}: {path!r} should be there: {errno.errorcode[code]}")
        self._compare_node(front_end, path, node)

    def _compare_node(self, front_end: FrontEnd, path: str, node: Node) -> None:
        status = front_end.status(path)
        if status.kind != node.kind:
            raise self._divergence(f"{front_end.name}: {path!r} is a {status.kind}, not a {node.kind}")
        if isinstance(node, FileNode):
            if (status.size, status.links) != (len(node.content), node.links):
                raise self._divergence(f"{front_end.name}: {path!r}: {status}, not {len(node.content)}, {node.links}")
            self._compare_content(front_end, path, bytes(node.content))
        elif isinstance(node, SymlinkNode):
            if (target := front_end.readlink(path)) != node.target:
                raise self._divergence(f"{front_end.name}: {path!r} leads to {target!r}, not {node.target!r}")
        else:
            self._compare_names(front_end, path, node)

    def _compare_names(self, front_end: FrontEnd, path: str, node: DirectoryNode) -> None:
        hidden = {
            name for name, below in node.entries.items() if below.kind is Kind.SYMLINK and not front_end.makes_links
        }
        names = [name for name in front_end.names(path) if name not in hidden]
        if sorted(names) != sorted(set(node.entries) - hidden):
            raise self._divergence(f"{front_end.name}: {path!r} lists {sorted(names)}, not {sorted(node.entries)}")

    def _compare_content(self, front_end: FrontEnd, path: str, content: bytes) -> None:
        found = front_end.read(path, 0, len(content) + 1)
        if found == content:
            return
        at = next((at for at, pair in enumerate(zip(found, content, strict=False)) if pair[0] != pair[1]), -1)
        raise self._divergence(
            f"{front_end.name}: {path!r}: {len(found)} of {len(content)} bytes, the first wrong at {at}"
        )

    def _divergence(self, what: str) -> Divergence:
        return Divergence(f"seed {self.seed}, step {self.steps}: {what}\n  " + "\n  ".join(self._trace))

    @staticmethod
    def _said(result: object, code: int) -> str:
        if code:
            return errno.errorcode.get(code, str(code))
        return f"{len(result)} bytes" if isinstance(result, bytes) else repr(result)

    def _draw(self, front_end: FrontEnd) -> Step:
        """A random operation that this front end can say and that means the same through every front end."""
        while True:
            weights = [weight for weight, _ in DRAWN.values()]
            operation = self._random.choices(list(DRAWN), weights)[0]
            step = DRAWN[operation][1](self)
            if self._is_sayable(front_end, step):
                return step

    def _is_sayable(self, front_end: FrontEnd, step: Step) -> bool:
        nodes = [self.model.find(path) for path in step.paths]
        symlinks = [isinstance(node, SymlinkNode) for node in nodes]
        if step.operation in ("read", "write", "truncate", "link") and symlinks[0]:
            return False  # These follow links, or not, as each protocol pleases.
        if front_end.makes_links:
            return True
        if step.operation in ("link", "symlink") or any(symlinks):
            return False
        # SMB replaces no directory, and refuses to replace a name by another of the same file.
        return step.operation != "rename" or not (isinstance(nodes[1], DirectoryNode) or nodes[0] is nodes[1])

    def _directory(self) -> str:
        paths = [path for path, node in self.model.walk() if isinstance(node, DirectoryNode)]
        return self._random.choice([path for path in paths if path.startswith(self._folder)])

    def _path(self) -> str:
        """A name that may or may not be taken."""
        directory, name = self._directory(), self._random.choice(NAMES)
        return f"{directory}/{name}" if directory else name

    def _path_of(self, kind: type[Node]) -> str:
        """Mostly something of that kind, now and then any name."""
        paths = [path for path, node in self.model.walk() if isinstance(node, kind) and path != self._folder]
        if not paths or self._random.random() < 0.1:
            return self._path()
        return self._random.choice([path for path in paths if path.startswith(self._folder)])

    def _offset(self) -> int:
        return self._random.choice([0, 1, 4095, 4096, 4097, 65536, self._random.randrange(FILE_BYTES_MAX // 2)])

    def _draw_create(self) -> Step:
        path = self._path()
        return Step("create", (path,), (path,))

    def _draw_write(self) -> Step:
        path, length = (
            self._path_of(FileNode),
            self._random.choice([1, 100, 4096, 8192, self._random.randrange(1, 65536)]),
        )
        data = bytes(length) if self._random.random() < 0.1 else self._random.randbytes(length)
        return Step("write", (path, self._offset(), data), (path,))

    def _draw_truncate(self) -> Step:
        path = self._path_of(FileNode)
        return Step("truncate", (path, self._offset()), (path,))

    def _draw_read(self) -> Step:
        path = self._path_of(FileNode)
        return Step("read", (path, self._offset(), self._random.randrange(1, 65536)), (path,))

    def _draw_mkdir(self) -> Step:
        count = sum(isinstance(node, DirectoryNode) for _, node in self.model.walk())
        path = self._path()
        return Step("mkdir" if count < DIRECTORIES_MAX else "rmdir", (path,), (path,))

    def _draw_rmdir(self) -> Step:
        path = self._path_of(DirectoryNode)
        return Step("rmdir", (path,), (path,))

    def _draw_unlink(self) -> Step:
        path = self._path_of(self._random.choice([FileNode, FileNode, SymlinkNode]))
        return Step("unlink", (path,), (path,))

    def _draw_rename(self) -> Step:
        source, target = self._path_of(self._random.choice([FileNode, DirectoryNode, SymlinkNode])), self._path()
        return Step("rename", (source, target), (source, target))

    def _draw_link(self) -> Step:
        existing, new = self._path_of(FileNode), self._path()
        return Step("link", (existing, new), (existing, new))

    def _draw_symlink(self) -> Step:
        path = self._path()
        return Step("symlink", (self._random.choice(NAMES), path), (path,))


DRAWN: dict[str, tuple[int, Callable[[Exerciser], Step]]] = {
    "create": (12, Exerciser._draw_create),
    "write": (24, Exerciser._draw_write),
    "truncate": (8, Exerciser._draw_truncate),
    "read": (10, Exerciser._draw_read),
    "mkdir": (6, Exerciser._draw_mkdir),
    "rmdir": (3, Exerciser._draw_rmdir),
    "unlink": (5, Exerciser._draw_unlink),
    "rename": (12, Exerciser._draw_rename),
    "link": (6, Exerciser._draw_link),
    "symlink": (3, Exerciser._draw_symlink),
}
"""How often each operation is drawn, and how."""
