"""The HTTP/1.1 client of launchers: small, fast, and connected to allowed addresses only.

It sends one request per connection at a time and reads responses up to a limit. It follows no redirects, uses
no proxies and keeps no cookies. `client.HttpClient` is the interface.
"""
