# SPDX-License-Identifier: LGPL-3.0-or-later
"""Runs the C tests of the messages and of sessions, under the sanitizers."""

import os
import pathlib
import random
import subprocess
import unittest

HERE = pathlib.Path(__file__).resolve().parent
BUILT = HERE.parent.parent / "build" / "fsal_plugin" / "tests"


class Transport(unittest.TestCase):
    def run_with_seeds(self, program: str) -> None:
        path = BUILT / program
        if not path.exists():
            self.skipTest(f"{path} is not built")
        environment = {**os.environ, "TSAN_OPTIONS": f"suppressions={HERE}/tsan.supp"}
        for _ in range(3):
            seed = random.randrange(1, 2**63)
            done = subprocess.run([path, str(seed)], env=environment, capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, f"{program} {seed}\n{done.stdout}{done.stderr}")

    def test_with_address_sanitizer(self) -> None:
        self.run_with_seeds("transport_asan")

    def test_with_thread_sanitizer(self) -> None:
        self.run_with_seeds("transport_tsan")


if __name__ == "__main__":
    unittest.main()
