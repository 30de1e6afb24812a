"""Use cases for runs: start by hand, claim, complete, cancel, replay."""
