"""Settings: one dataclass per component, with its defaults, its documentation and its checks. Imports nothing heavy."""
