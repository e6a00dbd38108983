"""Repositories of the hub: fetched by a child process with a deadline."""
