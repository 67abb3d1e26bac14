"""Trace replay for the Tombolo storage gateway.

The policies and the data path are the product's own, in Rust; this package names jobs, runs them, keeps their results,
draws them and compares them with what the papers print. It never reimplements a policy.
"""
