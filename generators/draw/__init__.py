"""SVG drawings of pages: charts, tiles, launch schedules, roofline paths and glossary pictures."""
