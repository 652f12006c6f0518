"""One HTML page about many runs: records, statistics, figures, sections."""
