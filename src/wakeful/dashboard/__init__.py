"""The web dashboard: pages over the service layer, served at `/`."""
