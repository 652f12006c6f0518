"""Benchmarks: reference scores and the statistics of many runs."""
