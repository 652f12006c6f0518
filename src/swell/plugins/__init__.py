"""The adaptive batch inside other libraries, each in a file of its own that imports it. Nobody imports this package."""
