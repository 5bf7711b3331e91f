"""Base version: loads run ahead, scores and output take turns."""
