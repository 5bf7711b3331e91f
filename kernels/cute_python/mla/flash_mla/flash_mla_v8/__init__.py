"""v8: a cluster's partial outputs merge 64 columns at a time, through DSMEM."""
