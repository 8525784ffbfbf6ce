"""Version of the plugin; the same as the package's."""

__version__ = "0.1.0"
