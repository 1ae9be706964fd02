"""The HTTP server: JSON API, event streams, and the pages that use them. Everything is made by `app.create_app`."""
