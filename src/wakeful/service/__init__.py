"""The use cases. Every interface calls these: validate, authorize, charge, act, audit."""
