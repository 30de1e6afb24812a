"""Jobs, their policies and targets, and the rules of what a job may do. Pure."""
