"""v5: as many CTAs per row tile as there are SMs for, merged by a second kernel."""
