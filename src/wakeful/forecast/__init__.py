"""What will run: peaks of load and previews of schedules. Pure."""
