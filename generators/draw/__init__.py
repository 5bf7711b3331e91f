"""SVG drawings for pages: charts, tiles, launch schedules, roofline paths and glossary figures."""
