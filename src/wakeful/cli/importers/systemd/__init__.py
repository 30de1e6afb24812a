"""Read timers and services of systemd."""
