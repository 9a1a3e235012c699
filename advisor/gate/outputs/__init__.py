"""A verdict in the forms its readers take: people, pull requests, test dashboards, code scanners."""
