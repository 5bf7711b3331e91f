"""Pages, figures and texts that only the workload MLA has."""
