"""Base version: enough splits to fill every SM, then a reduce kernel."""
