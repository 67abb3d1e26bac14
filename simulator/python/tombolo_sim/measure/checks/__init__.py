"""Whether a bucket is fit to be a gateway's store: what may be done in it, and what it does by itself."""

from tombolo_sim.measure.checks.finding import Finding, Verdict
from tombolo_sim.measure.checks.run import Checked, HarmfulStore, check

__all__ = ["Checked", "Finding", "HarmfulStore", "Verdict", "check"]
