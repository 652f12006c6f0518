"""Learners, one file a paper."""
