"""Runs that survive anything: building, driving, saving, resuming, reading back."""
