"""Pieces of Markdown and HTML that several pages need."""
