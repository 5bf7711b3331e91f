"""Pictures as SVG: charts, tiles, schedules, climbs, and those of single terms."""
