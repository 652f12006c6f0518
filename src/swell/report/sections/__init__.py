"""The sections of a report: what came out, how variants compare, and the runs themselves."""
