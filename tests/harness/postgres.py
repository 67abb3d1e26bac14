"""PostgreSQL with its data on the file system to be judged: a client of fsync that checks its own books.

pgbench moves amounts between accounts; the sums of accounts, tellers and branches, and of the history, must agree.
"""

from pathlib import Path

from harness.process import Process
from harness.tools import run

PROGRAMS = Path("/usr/lib/postgresql/15/bin")
USER = "postgres"
SUMS = (
    "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers),"
    " (SELECT sum(bbalance) FROM pgbench_branches), (SELECT coalesce(sum(delta), 0) FROM pgbench_history)"
)


class Postgres:
    """Its data in `data`, its socket and logs in `folder`. Runs as the user postgres, for it refuses to be root."""

    def __init__(self, data: Path, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._data = data
        self.process = Process("postgres", folder / "postgres.log")
        self._as_user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        run(["chown", USER, folder])
        run(["install", "-d", "-o", USER, "-m", "0700", data])
        self._run("initdb", "-D", str(data), "--data-checksums", "-A", "trust", "-N")

    def _run(self, program: str, *words: str, limit_s: float = 120) -> str:
        return run([*self._as_user, str(PROGRAMS / program), *words], limit_s, cwd=self.folder).stdout

    def start(self) -> None:
        words = ["-D", str(self._data), "-k", str(self.folder), "-c", "listen_addresses=", "-c", "shared_buffers=16MB"]
        self.process.start([*self._as_user, str(PROGRAMS / "postgres"), *words])
        self.process.wait_until(self._answers, 60, "answer")

    def _answers(self) -> bool:
        words = [str(PROGRAMS / "pg_isready"), "-q", "-h", str(self.folder)]
        return run(words, expected_codes=range(4)).returncode == 0

    def kill9(self) -> None:
        self.process.kill9_family()

    def close(self) -> None:
        self.process.kill9_family()

    def stop(self) -> None:
        self.process.stop(60)

    def prepare(self, scale: int = 1) -> None:
        self._run("pgbench", "-h", str(self.folder), "-i", "-q", "-s", str(scale), USER)

    def load(self, seconds: int, clients: int = 4) -> Process:
        """Starts pgbench."""
        load = Process("pgbench", self.folder / "pgbench.log")
        words = ["-h", str(self.folder), "-n", "-c", str(clients), "-T", str(seconds), USER]
        load.start([*self._as_user, str(PROGRAMS / "pgbench"), *words])
        return load

    def transactions(self) -> int:
        return int(self._query("SELECT count(*) FROM pgbench_history"))

    def check_books(self) -> None:
        sums = self._query(SUMS).split("|")
        if len(set(sums)) != 1:
            raise AssertionError(f"the books do not balance: {sums}")

    def check_files(self) -> None:
        """Every page's checksum; the server must be stopped."""
        self._run("pg_checksums", "--check", "-D", str(self._data))

    def _query(self, text: str) -> str:
        return self._run("psql", "-h", str(self.folder), "-At", "-c", text, USER).strip()
