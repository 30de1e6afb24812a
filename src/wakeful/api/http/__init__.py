"""The HTTP face: one file a part of the API, thin over the service layer."""
