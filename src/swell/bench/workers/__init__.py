"""Where the runs of a benchmark are trained: in a process each, started on this machine or by Ray."""
