"""Databases for the benchmarks, and bare SQL as the floor."""
