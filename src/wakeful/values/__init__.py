"""Values and small tools that all packages use: ids, clocks, durations, JSON and text.

Nothing about schedules, jobs or runs belongs here.
"""
