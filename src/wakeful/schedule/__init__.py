"""When a job ticks: schedules, calendars, hours, and times in words. Pure: nothing here reads the clock."""
