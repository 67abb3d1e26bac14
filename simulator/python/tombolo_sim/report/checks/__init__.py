"""The Tombolo paper's claims, and whether they hold on the traces at hand. Each other paper has a report of its own.

A claim about the traces of the paper cannot be decided on others. What the same measure is on the traces at hand is
shown all the same, each with its own verdict, so that nobody has to take the claim's for it.
"""

from tombolo_sim.report.checks.base import Check, Finding, Verdict
from tombolo_sim.report.checks.tombolo import additions, tombolo

__all__ = ["Check", "Finding", "Verdict", "additions", "tombolo"]
