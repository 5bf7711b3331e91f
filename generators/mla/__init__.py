"""Pages and figures of MLA alone."""
