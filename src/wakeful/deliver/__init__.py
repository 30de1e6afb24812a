"""Deliver: carries messages to people, through channels that the operator has set up."""
