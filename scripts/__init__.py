"""Development tools. They are not part of the package."""
