"""Writers of Markdown and HTML fragments that several page families share."""
