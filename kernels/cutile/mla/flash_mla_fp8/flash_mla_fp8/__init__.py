"""Base version: dequantized per tile, keys split over blocks."""
